"""Look at what is installed, configured and reachable, and say what to do about the rest.

The addresses are asked side by side, and none for longer than it may take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import trajkit
from trajkit.commands.checkup.check import Check, Checkup, Section, Standing, broken
from trajkit.commands.checkup.database import database, databases
from trajkit.commands.checkup.local_stack import local_stack
from trajkit.commands.checkup.machine import machine
from trajkit.commands.checkup.package import packages
from trajkit.commands.checkup.program import programs
from trajkit.commands.checkup.remote import GATEWAY_VARIABLE, gateway, hub
from trajkit.commands.checkup.runs import jobs, recipe_runs
from trajkit.commands.checkup.setting import settings, source_folder
from trajkit.commands.checkup.stores import stores
from trajkit.errors import TrajkitError

Look = Callable[[], Iterable[Check]]
"""Looks at something, and says how it is."""

_LONGEST_S = 15.0
"""What may wait for the network has this long, all together."""


class _Asked(NamedTuple):
    """An address that is being asked, in a thread of its own."""

    name: str
    thread: threading.Thread
    found: list[Check]


def doctor(*, online: bool = False) -> Checkup:
    """Say what is installed, configured and reachable here, and what to do about the rest.

    It looks at the machine, at each extra of trajkit, at trajkit.toml and the variables that are set, asks
    the databases and the gateway that they name, and goes through the stores and runs of the folder. Nothing
    is changed.

    Ends with 1 when something that is configured does not work. What is optional and not there is a note.
    Values of variables, and passwords in addresses, are never shown.

    Args:
        online: Ask the Hugging Face Hub too, and whose token this is.
    """
    asked = [_ask(name, look) for name, look in _addresses(online)]  # they wait while the rest is looked at
    looked = [
        Section(name="machine", checks=_looked("machine", machine)),
        Section(name="packages", checks=_looked("packages", packages)),
        Section(name="programs", checks=_looked("programs", programs)),
        Section(name="settings", checks=_looked("settings", settings)),
    ]
    folder = chain.from_iterable(_looked(name, look) for name, look in _FOLDER)
    sections = (
        *looked,
        Section(name="services", checks=tuple(_answers(asked, _LONGEST_S))),
        Section(name="folder", checks=tuple(folder)),
    )
    standings = [check.standing for section in sections for check in section.checks]
    return Checkup(
        trajkit_version=trajkit.__version__,
        folder=str(Path.cwd()),
        online=online,
        sections=sections,
        n_broken=standings.count(Standing.BROKEN),
        n_notes=standings.count(Standing.NOTE),
    )


_FOLDER: tuple[tuple[str, Look], ...] = (
    ("source", source_folder),
    ("stores", stores),
    ("jobs", jobs),
    ("runs", recipe_runs),
)


def _addresses(online: bool) -> Iterator[tuple[str, Look]]:
    yield "local stack", local_stack
    for named in databases():
        yield named.name, partial(_one, partial(database, named))
    yield GATEWAY_VARIABLE, partial(_one, gateway)
    if online:
        yield "Hub", partial(_one, hub)


def _one(look: Callable[[], Check | None]) -> Iterator[Check]:
    if (found := look()) is not None:
        yield found


def _looked(name: str, look: Look) -> tuple[Check, ...]:
    """What a look found. One that fails is told like anything else that does not work."""
    found: list[Check] = []
    try:
        found.extend(look())
    except Exception as error:  # noqa: BLE001 -- a package that cannot be imported is what a doctor is for
        # its text may hold an address with a password; of what cannot be imported it holds a name
        is_ours = isinstance(error, ImportError | TrajkitError)
        said = f"{error}" if is_ours else type(error).__name__
        found.append(broken(name, f"cannot be looked at: {said}", "pip install -U trajkit"))
    return tuple(found)


def _ask(name: str, look: Look) -> _Asked:
    found: list[Check] = []
    thread = threading.Thread(target=lambda: found.extend(_looked(name, look)), daemon=True)
    thread.start()
    return _Asked(name, thread, found)


def _answers(asked: Iterable[_Asked], longest_s: float) -> Iterator[Check]:
    """What was found, in the order of asking; who has not answered in time is told so."""
    deadline = time.monotonic() + longest_s
    for one in asked:
        one.thread.join(max(0.0, deadline - time.monotonic()))
        if one.thread.is_alive():
            yield broken(
                one.name, f"no answer within {longest_s:g} s", "is the address right, and the network up?"
            )
        else:
            yield from one.found
