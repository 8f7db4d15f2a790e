"""Check what is installed, configured and reachable, and how to fix the rest.

The addresses are checked in parallel, with one time limit for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import trajkit
from trajkit.commands.checkup.check import Check, Checkup, Section, Standing, broken
from trajkit.commands.checkup.folder import jobs, recipe_runs, stores
from trajkit.commands.checkup.machine import machine
from trajkit.commands.checkup.package import packages
from trajkit.commands.checkup.program import programs
from trajkit.commands.checkup.service import GATEWAY_VARIABLE, database, databases, gateway, hub, local_stack
from trajkit.commands.checkup.setting import settings, source_folder
from trajkit.errors import TrajkitError

Look = Callable[[], Iterable[Check]]
"""Checks something, and returns the results."""

_Asked = tuple[str, threading.Thread, list[Check]]
"""An address that is being checked: its name, the thread, and its results."""

_LONGEST_S = 15.0
"""Time limit of all checks that wait for the network together."""


def doctor(*, online: bool = False) -> Checkup:
    """Report what is installed, configured and reachable here, and how to fix the rest.

    It checks the machine, each extra of trajkit, trajkit.toml and the variables that are set, the databases
    and the gateway that they name, and the stores and runs of the folder. Nothing is changed.

    The exit code is 1 if something that is configured does not work. A missing optional part is a note.
    Values of variables, and passwords in addresses, are never shown.

    Args:
        online: Also ask the Hugging Face Hub whose token this is.
    """
    asked = [_ask(name, look) for name, look in _addresses(online)]  # they wait while the rest is checked
    looked = [Section(name=look.__name__, checks=_looked(look.__name__, look)) for look in _HERE]
    folder = chain.from_iterable(_looked(name, look) for name, look in _FOLDER)
    sections = (
        *looked,
        Section(name="services", checks=tuple(_answers(asked))),
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


_HERE = (machine, packages, programs, settings)
_FOLDER: tuple[tuple[str, Look], ...] = (
    ("source", source_folder),
    ("stores", stores),
    ("jobs", jobs),
    ("runs", recipe_runs),
)


def _addresses(online: bool) -> Iterator[tuple[str, Look]]:
    yield "local stack", local_stack
    for name, url in databases().items():
        yield name, partial(_one, partial(database, name, url))
    yield GATEWAY_VARIABLE, partial(_one, gateway)
    if online:
        yield "Hub", partial(_one, hub)


def _one(look: Callable[[], Check | None]) -> Iterator[Check]:
    if (found := look()) is not None:
        yield found


def _looked(name: str, look: Look) -> tuple[Check, ...]:
    """The results of a check. A check that raises is reported as broken."""
    found: list[Check] = []
    try:
        found.extend(look())
    except Exception as error:  # noqa: BLE001 -- a package that cannot be imported is what a doctor is for
        # its text may hold an address with a password; that of an ImportError holds a name
        is_ours = isinstance(error, ImportError | TrajkitError)
        said = f"{error}" if is_ours else type(error).__name__
        found.append(broken(name, f"cannot be checked: {said}", "pip install -U trajkit"))
    return tuple(found)


def _ask(name: str, look: Look) -> _Asked:
    found: list[Check] = []
    thread = threading.Thread(target=lambda: found.extend(_looked(name, look)), daemon=True)
    thread.start()
    return name, thread, found


def _answers(asked: Iterable[_Asked]) -> Iterator[Check]:
    """The results in order; an address that did not answer in time is reported as broken."""
    deadline = time.monotonic() + _LONGEST_S
    for name, thread, found in asked:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            said = f"no answer within {_LONGEST_S:g} s"
            yield broken(name, said, "check the address and the network")
        else:
            yield from found
