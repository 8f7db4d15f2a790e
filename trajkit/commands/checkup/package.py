"""What pip installed: each extra of trajkit, its packages, and versions that do not go together."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trajkit.commands.checkup.check import Check, broken, note, well

_TRAJKIT = "trajkit"
PURPOSES = {
    "clickhouse": "TensorZero's ClickHouse",
    "postgres": "TensorZero's Postgres",
    "tensorzero": "playing through TensorZero's gateway",
    "render": "prompts of another variant",
    "stack": "`trajkit up`",
    "babyai": "BabyAI",
    "textworld": "TextWorldExpress",
    "openai": "OpenAI and services with its API",
    "gymnasium": "Gymnasium's environments",
    "dedupe": "near-duplicates",
    "local": "local models: tuning, answering",
    "cuda": "models in 4 or 8 bits",
    "serve": "`trajkit serve`",
    "tensorboard": "curves in TensorBoard",
    "wandb": "curves in Weights & Biases",
    "hosted": "Together, Fireworks",
    "tinker": "`trajkit rl tinker`",
    "trl": "`trajkit dpo local`, `trajkit kto local`",
    "tokens": "`trajkit tokens`",
    "otel": "`trajkit receive`, traces as protobuf",
    "report": "charts",
    "hf": "Hugging Face datasets in Python",
    "hub": "`trajkit push`, `trajkit pull`",
    "polars": "polars frames in Python",
    "ray": "shards on many machines (`--on ray`)",
    "s3": "stores at s3://",
    "gcs": "stores at gs://",
    "azure": "stores at az://",
    "pii": "names of people in `trajkit redact`",
}
"""What an extra is for. One that is not here is shown by its name."""
_UNIONS = frozenset({"all", "dev"})
"""Extras that are other extras together, or for working on trajkit itself."""


class Need(NamedTuple):
    """A package that an extra installs."""

    requirement: Requirement
    """As its metadata has it."""
    wanted_by: str
    """The package whose metadata that is."""
    version: str | None
    """What is installed; None for nothing."""

    @property
    def name(self) -> str:
        """The package."""
        return self.requirement.name

    @property
    def fits(self) -> bool:
        """Whether the installed version is what is wanted."""
        return self.version is not None and self.requirement.specifier.contains(
            self.version, prereleases=True
        )


def packages() -> Iterator[Check]:
    """Trajkit itself, the packages that it requires, and each of its extras."""
    installed = Installed()
    version = installed.version(_TRAJKIT)
    if version is None:
        yield broken(_TRAJKIT, "it runs, but pip does not list it", "pip install -e .")
        return
    yield well(_TRAJKIT, f"{version}  {_place()}", version=version)
    yield _core(installed)
    for extra in metadata.metadata(_TRAJKIT).get_all("Provides-Extra") or ():
        if extra not in _UNIONS and (needs := list(installed.needs(extra))):
            yield _extra(installed, extra, needs)


class Installed:
    """The metadata of installed packages, each read once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str | None, tuple[Requirement, ...]]] = {}

    def version(self, name: str) -> str | None:
        """The version of a package that is installed; None for none."""
        return self._read(name)[0]

    def has(self, extra: str) -> bool:
        """Whether every package of an extra of ours is installed."""
        return all(need.version is not None for need in self.needs(extra))

    def needs(self, extra: str = "") -> Iterator[Need]:
        """What an extra of ours installs, also by naming another one; without one, the core."""
        for requirement in self._asked(_TRAJKIT, frozenset({extra})):
            if extra and _applies(requirement, frozenset({""})):
                continue  # of the core
            if canonicalize_name(requirement.name) != _TRAJKIT:
                yield Need(requirement, _TRAJKIT, self.version(requirement.name))
                continue
            for other in sorted(requirement.extras):
                yield from self.needs(other)

    def below(self, needs: Iterable[Need]) -> Iterator[Need]:
        """The requirements of these packages, recursively."""
        waiting = [need.requirement for need in needs]
        seen: set[tuple[str, frozenset[str]]] = set()
        while waiting:
            wanted = waiting.pop()
            key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
            if key in seen:
                continue
            seen.add(key)
            for requirement in self._asked(wanted.name, key[1] or frozenset({""})):
                waiting.append(requirement)
                yield Need(requirement, wanted.name, self.version(requirement.name))

    def _asked(self, name: str, extras: frozenset[str]) -> Iterator[Requirement]:
        """The requirements of an installed package on this machine, with these of its extras."""
        return (each for each in self._read(name)[1] if _applies(each, extras))

    def _read(self, name: str) -> tuple[str | None, tuple[Requirement, ...]]:
        key = canonicalize_name(name)
        if key not in self._found:
            try:
                found = metadata.distribution(name)
                self._found[key] = (found.version, tuple(_parsed(found.requires or ())))
            except metadata.PackageNotFoundError:
                self._found[key] = (None, ())
        return self._found[key]


def _parsed(texts: Iterable[str]) -> Iterator[Requirement]:
    for text in texts:
        with contextlib.suppress(InvalidRequirement):  # written before there was a standard
            yield Requirement(text)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def _place() -> str:
    found = metadata.distribution(_TRAJKIT).read_text("direct_url.json")
    where = json.loads(found) if found else {}
    if where.get("dir_info", {}).get("editable"):
        return f"editable, {where['url'].removeprefix('file://')}"
    return f"in {sys.prefix}"


def _core(installed: Installed) -> Check:
    needs = list(installed.needs())
    if wrong := list(_wrong(installed, needs)):
        return broken("core", "; ".join(wrong), "pip install -U trajkit", **_facts(needs))
    return well("core", _versions(needs), **_facts(needs))


def _extra(installed: Installed, extra: str, needs: list[Need]) -> Check:
    command = f"pip install 'trajkit[{extra}]'"
    missing = [need.name for need in needs if need.version is None]
    if missing:
        purpose = f" ({PURPOSES[extra]})" if extra in PURPOSES else ""
        return note(extra, f"not installed: {', '.join(missing)}{purpose}", command, **_facts(needs))
    if wrong := list(_wrong(installed, needs)):
        return broken(extra, "; ".join(wrong), command, **_facts(needs))
    return well(extra, _versions(needs), **_facts(needs))


def _wrong(installed: Installed, needs: list[Need]) -> Iterator[str]:
    """Installed versions that trajkit, or one of its requirements, does not accept."""
    for need in dict.fromkeys((*needs, *installed.below(needs))):
        if not need.fits:
            is_there = f"is {need.version}" if need.version else "is not installed"
            yield f"{need.name} {is_there}, and {need.wanted_by} needs {need.requirement.specifier or 'it'}"


def _versions(needs: list[Need]) -> str:
    return ", ".join(f"{need.name} {need.version}" for need in needs)


def _facts(needs: list[Need]) -> dict[str, object]:
    return {"packages": {need.name: need.version for need in needs}}
