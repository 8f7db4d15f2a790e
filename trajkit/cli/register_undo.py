"""`trajkit register --undo`: a registration taken back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._core import console
from trajkit._core.console import confirm
from trajkit.cli.register import RESTART, UNCHANGED, print_diff
from trajkit.commands.place import near

if TYPE_CHECKING:
    from trajkit.registry.ledger import Ledger


def undo_last(ledger: Ledger, job: str | None, asked: dict[str, Any]) -> None:
    """Put back what the files of a registration were."""
    from trajkit.commands.register import last_registration, take_back
    from trajkit.registry import change

    last = last_registration(ledger, job, asked)
    change.check_undo(last.files)
    lines = change.undo_diff(last.files)
    if not asked["as_json"]:
        print_diff(lines)
    if not asked["dry_run"]:
        confirm("Take it back?", yes=asked["yes"], verb="takes it back", refused=UNCHANGED)
        take_back(ledger, last)
    said = {"registration_id": last.registration_id, "diff": lines, "is_written": not asked["dry_run"]}
    if asked["as_json"]:
        console.result_json(said)
    if asked["dry_run"]:
        console.talk("dry run: nothing was written")
        return
    console.talk(RESTART)
    if not asked["as_json"]:
        console.result(f"{near(Path(last.config))}  {last.function}/{last.variant}  taken back")
