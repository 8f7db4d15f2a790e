"""`constraints.txt` pins everything that is installed, and what is installed is what it pins."""

from __future__ import annotations

import functools
import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent.parent


@functools.cache
def pins() -> dict[str, str]:
    """Version by normalised name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(_pin(line) for line in lines if line and not line.startswith("#"))


@functools.cache
def needed(*, anywhere: bool = False) -> set[str]:
    """Names of what `trajkit[all,dev]` brings, directly or not: here, or on any platform."""
    found: set[str] = set()
    waiting = [("trajkit", frozenset({"all", "dev"}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})
            ):
                waiting.append((_normal(requirement.name), frozenset(requirement.extras)))
            elif anywhere and _is_elsewhere(requirement):
                found.add(_normal(requirement.name))
    return found - {"trajkit"}


def test_everything_that_is_installed_is_pinned_to_its_version():
    # a build for one machine, such as 2.13.0+cpu, is the version that is pinned
    assert {name: metadata.version(name).partition("+")[0] for name in needed()} == {
        name: version for name, version in pins().items() if name in needed()
    }


def test_nothing_is_pinned_that_is_not_needed():
    assert set(pins()) <= needed(anywhere=True)


def test_pins_are_versions_and_nothing_else():
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def test_the_pinned_versions_take_the_oldest_python_of_the_readme():
    # two pins that needed Python 3.11.5 could not be installed on Debian 12, which has 3.11.2
    needs = {name: metadata.metadata(name)["Requires-Python"] for name in pins() if name in needed()}
    assert {name: need for name, need in needs.items() if need and "3.11.0" not in SpecifierSet(need)} == {}


def _is_elsewhere(requirement: Requirement) -> bool:
    """Whether another platform or Python version may need what this one does not."""
    marker = str(requirement.marker or "")
    return (
        any(name in marker for name in ("python_version", "platform", "implementation"))
        and "extra" not in marker
    )


def _pin(line: str) -> tuple[str, str]:
    name, _, version = line.partition("==")
    return _normal(name), version


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
