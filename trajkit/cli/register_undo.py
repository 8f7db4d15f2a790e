"""`trajkit register --undo`: a registration taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit.cli import output
from trajkit.cli.page import visible
from trajkit.cli.register import RESTART, UNCHANGED, print_diff
from trajkit.cli.training import confirm, near
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.registry.ledger import Ledger, Registration


def take_back(ledger: Ledger, job: str | None, asked: dict[str, Any]) -> None:
    """Put back what the files of a registration were."""
    from trajkit.registry import change
    from trajkit.registry.ledger import Undone

    last = _last(ledger, job, asked)
    change.check_undo(last.files)
    lines = change.undo_diff(last.files)
    if not asked["as_json"]:
        print_diff(lines)
    if not asked["dry_run"]:
        confirm("Take it back?", yes=asked["yes"], verb="takes it back", refused=UNCHANGED)
        change.undo(last.files)
        ledger.add(Undone(registration_id=last.registration_id, undone_at=datetime.now(UTC)))
    said = {"registration_id": last.registration_id, "diff": lines, "is_written": not asked["dry_run"]}
    if asked["as_json"]:
        output.result_json(said)
    if asked["dry_run"]:
        output.talk("dry run: nothing was written")
        return
    output.talk(RESTART)
    if not asked["as_json"]:
        output.result(visible(f"{near(Path(last.config))}  {last.function}/{last.variant}  taken back"))


def _last(ledger: Ledger, job: str | None, asked: dict[str, Any]) -> Registration:
    """The newest registration that stands, of what is asked for."""
    wanted = {
        "variant": asked["variant"],
        "function": asked["function"],
        "config": asked["config"] and str(Path(asked["config"]).absolute()),
    }
    models = [name for name in (job, asked["model"]) if name is not None]
    for each in ledger.standing():
        is_of_model = all(name in each.model.all_names for name in models)
        is_wanted = all(value in (None, getattr(each, name)) for name, value in wanted.items())
        if each.files and is_of_model and is_wanted:
            return each
    wanted["model"] = " ".join(models)
    of = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
    raise RequestError(
        f"there is nothing to take back{f' of {of}' if of else ''}",
        hint=f"what was registered: {ledger.path}",
    )
