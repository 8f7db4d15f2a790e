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
"""Looks at something, and says how it is."""

_Asked = tuple[str, threading.Thread, list[Check]]
"""An address that is being asked: its name, the thread, and what that finds."""

_LONGEST_S = 15.0
"""What may wait for the network has this long, all together."""


def doctor(*, online: bool = False) -> Checkup:
    """Say what is installed, configured and reachable here, and what to do about the rest.

    It looks at the machine, at each extra of trajkit, at trajkit.toml and the variables that are set, asks
    the databases and the gateway that they name, and goes through the stores and runs of the folder. Nothing
    is changed.

    Ends with 1 when something that is configured does not work. What is optional and not there is a note.
    Values of variables, and passwords in addresses, are never shown.

    Args:
        online: Also ask the Hugging Face Hub whose token this is.
    """
    asked = [_ask(name, look) for name, look in _addresses(online)]  # they wait while the rest is looked at
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
    return name, thread, found


def _answers(asked: Iterable[_Asked]) -> Iterator[Check]:
    """What was found, in the order of asking; who has not answered in time is told so."""
    deadline = time.monotonic() + _LONGEST_S
    for name, thread, found in asked:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            said = f"no answer within {_LONGEST_S:g} s"
            yield broken(name, said, "is the address right, and the network up?")
        else:
            yield from found
