"""`trajkit doctor`: what is installed, configured and reachable, and what to do about the rest."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit._core.console import Styled, styled

if TYPE_CHECKING:
    from trajkit.commands.checkup.check import Check, Checkup, Standing

_SIGNS = {"well": "✓", "note": "·", "broken": "✗"}
_WORDS = {"well": "ok ", "note": "-- ", "broken": "BAD"}
"""The same where the output cannot say the signs."""
_COLOURS = {"well": "green", "note": "yellow", "broken": "red"}
_NARROWEST, _UNBOUND = 60, 10**6
"""Columns: of the smallest terminal that is wrapped for, and of what is none."""
_NAMES = 16
"""Columns that a name is given; a longer one takes what it needs."""

_EPILOG = """\
Ends with 1 when something that is configured does not work. What is optional and not there is a note. Values
of variables, and passwords in addresses, are never shown.
"""


@click.command(epilog=_EPILOG)
@click.option("--online", is_flag=True, help="Ask the Hugging Face Hub too, and whose token this is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with every version.")
def doctor(online: bool, as_json: bool) -> int:
    """Say what is installed, configured and reachable here, and what to do about the rest.

    It looks at the machine, at each extra of trajkit, at trajkit.toml and the variables that are set, asks
    the databases and the gateway that they name, and goes through the stores and runs of the folder. Nothing
    is changed.
    """
    from trajkit.commands.checkup.doctor import doctor as examined

    found = examined(online=online)
    if as_json:
        console.result_json({"is_well": found.is_well, **found.model_dump(mode="json")})
    else:
        _print(found)
    return 0 if found.is_well else 1


def _print(found: Checkup) -> None:
    width = max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _UNBOUND
    console.result(styled(f"trajkit {found.trajkit_version} in {found.folder}", bold=True))
    for section in found.sections:
        console.result()
        console.result(styled(section.name, bold=True))
        for check in section.checks:
            for line in _lines(check, width):
                console.result(*line)
    console.result()
    console.result(*_verdict(found))


def _lines(check: Check, width: int) -> Iterator[tuple[str | Styled, ...]]:
    """The sign, the name and what was found, wrapped below itself; then what to do."""
    sign = _sign(check.standing)
    margin = " " * (len(sign) + 3)
    column = " " * (_NAMES + 1)
    lines = textwrap.wrap(
        f"{check.name:<{_NAMES}} {check.text}",
        width - len(margin),
        subsequent_indent=column,
        break_long_words=False,
        break_on_hyphens=False,
    )
    coloured = styled(sign, fg=_COLOURS[check.standing], bold=True)
    yield "  ", coloured, f" {lines[0]}"
    yield from ((f"{margin}{line}",) for line in lines[1:])
    if check.todo is not None:  # not wrapped: it may be a command to be copied
        yield (styled(f"{margin}{column}{check.todo}", fg="cyan"),)


def _sign(standing: Standing) -> str:
    try:
        "".join(_SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return _WORDS[standing]
    return _SIGNS[standing]


def _verdict(found: Checkup) -> tuple[Styled, str]:
    notes = f"; {console.plural(found.n_notes, 'note')}" if found.n_notes else ""
    if found.is_well:
        return styled("all that is configured works", fg="green", bold=True), notes
    said = "1 thing does" if found.n_broken == 1 else f"{console.count(found.n_broken)} things do"
    return styled(f"{said} not work", fg="red", bold=True), notes
