"""Choose the base model and adapters that one server loads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit._core.samples import model_path
from trajkit.errors import RequestError
from trajkit.models.generation.located import Located, located
from trajkit.models.generation.model import LocalModel


class Wanted(NamedTuple):
    """A model to serve."""

    name: str
    """Name for clients."""
    model: str
    """Folder or id of a model or an adapter."""
    base: str | None = None
    """Base model of an adapter, where its settings do not name it."""


class Served(NamedTuple):
    """The models that one server loads."""

    base: str
    """Folder or id of the base model."""
    name: str
    """Name of the base model for clients."""
    adapters: dict[str, str]
    """Folders or ids of adapters, by their names for clients."""

    def arguments(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the arguments with which `trajkit serve` loads these models, in any folder.

        Args:
            names: Names of the requested models, in order.
        """
        folders = [self.adapters.get(name, self.base) for name in names]
        named = [argument for name in names for argument in ("--name", name)]
        base = ["--base", _absolute(self.base)] if self.adapters else []
        return (*map(_absolute, folders), *named, *base)

    def open(self, *, device: str | None = None) -> LocalModel:
        """Load the models.

        Raises:
            RequestError: A model cannot be loaded.
            MissingExtra: torch, transformers or peft is not installed.
        """
        return LocalModel.open(self.base, adapters=self.adapters, device=device, name=self.name)


def served_models(wanted: Sequence[Wanted]) -> Served:
    """Choose what one server loads to serve some models.

    Args:
        wanted: At most one whole model; the others must be adapters to it. If there are only adapters,
            their base model is also served, under its own name.

    Raises:
        RequestError: Two have the same name, or they have different base models.
    """
    found = [(each, located(each.model, each.base)) for each in wanted]
    bases = {_place(_base(one)): _base(one) for _, one in found}
    if len(bases) > 1:
        raise RequestError(
            f"one server loads one base model, and these have {len(bases)}: {', '.join(bases.values())}",
            hint="one `trajkit serve` for each base",
        )
    whole = [each.name for each, one in found if not one.is_adapter]
    if len(whole) > 1:
        raise RequestError(f"{' and '.join(whole)} are the same model", hint="name it once")
    adapters = {each.name: each.model for each, one in found if one.is_adapter}
    base = next(iter(bases.values()))
    name = whole[0] if whole else base
    if len({name, *adapters}) < len(wanted) + (not whole):
        raise RequestError("two models would have the same name", hint="--name NAME for each MODEL, in order")
    return Served(base, name, adapters)


def _base(found: Located) -> str:
    return found.base if found.is_adapter and found.base is not None else found.model


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def _place(name: str) -> str:
    """Return one spelling of a base model's name."""
    path = model_path(name)
    return os.path.realpath(path) if Path(path).is_dir() else path
