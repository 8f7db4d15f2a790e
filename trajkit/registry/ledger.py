"""Record which model was trained on which data with which recipe, and which variants use it.

The ledger is one append-only file of lines in the folder of the jobs: a registration stays known when the
job's folder, the store or the variant is gone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from trajkit.errors import DataError
from trajkit.registry.change import ChangedFile
from trajkit.schema import LineageEntry, Model
from trajkit.schema.base import Count, JsonObject, Name, UtcTime
from trajkit.schema.manifest import Sha256

LEDGER_FILE = "ledger.jsonl"


class Learned(Model):
    """Steps that a model was trained or measured on."""

    store: Path
    """The store they are of, absolute."""
    digest: Sha256
    """Digest of its content."""
    n_episodes: Count
    """Its episodes."""
    n_steps: Count
    """Its steps."""
    n_learned: Count
    """Those of them that the rows teach."""
    rows: Path | None = None
    """The file that says which step is in which row; None where there is none."""
    history: tuple[LineageEntry, ...] = ()
    """What was done to get that store, oldest first; empty when it was gone before anybody looked."""

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the store and of all its ancestors."""
        return frozenset({self.digest, *_digests(self.history)})


class TunedModel(Model):
    """A model, and what it was made of."""

    name: Name
    """How a configuration or a client names it."""
    names: tuple[Name, ...] = ()
    """Other names of it: at its service, its folder, and its checkpoints'."""
    job_id: Name | None = None
    """The job that trained it; None when it was tuned elsewhere."""
    job_key: Sha256 | None = None
    """What it was a job of."""
    target: Name | None = None
    """What trained it."""
    method: Name | None = None
    """How it learned."""
    base: Name | None = None
    """The model that it started from."""
    recipe: JsonObject = {}
    """Everything else that decided what came out."""
    train: Learned | None = None
    """What it learned; None when nobody knows."""
    validation: Learned | None = None
    """What measured it on the way."""

    @property
    def all_names(self) -> frozenset[str]:
        """Everything that it is called."""
        return frozenset(name for name in (self.name, *self.names, self.job_id) if name is not None)


class Registration(Model):
    """A variant that was added to a configuration."""

    kind: Literal["registration"] = "registration"
    registration_id: Name
    """Names it in this ledger."""
    model: TunedModel
    """What answers for the variant."""
    function: Name
    """Whose variant."""
    variant: Name
    """Its name."""
    template_variant: Name
    """The variant whose prompts it has."""
    config: Name
    """The configuration: a file, or a pattern of several; absolute."""
    files: tuple[ChangedFile, ...] = ()
    """What was written, with what takes it back."""
    registered_at: UtcTime
    """When."""
    trajkit_version: Name
    """By which version."""


class Undone(Model):
    """A registration that was taken back."""

    kind: Literal["undone"] = "undone"
    registration_id: Name
    """Which."""
    undone_at: UtcTime
    """When."""


_Line: TypeAdapter[Registration | Undone] = TypeAdapter(
    Annotated[Registration | Undone, Field(discriminator="kind")]
)


class Ledger:
    """The lines of the ledger.

    Args:
        folder: The folder of the jobs.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER_FILE

    def add(self, line: Registration | Undone) -> None:
        """Append a line: at once, so that others who append lose nothing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = f"{line.model_dump_json()}\n".encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def registrations(self) -> list[Registration]:
        """Every registration, the newest first; those that were taken back too."""
        return [line for line in reversed(self._lines()) if isinstance(line, Registration)]

    def undone(self) -> dict[str, Undone]:
        """What was taken back, by the registration's id."""
        return {line.registration_id: line for line in self._lines() if isinstance(line, Undone)}

    def standing(self) -> list[Registration]:
        """The registrations that were not taken back, the newest first."""
        gone = self.undone()
        return [each for each in self.registrations() if each.registration_id not in gone]

    def _lines(self) -> list[Registration | Undone]:
        if not self.path.is_file():
            return []
        found = []
        for number, text in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                found.append(_Line.validate_json(text))
            except ValidationError as error:
                raise DataError(
                    f"line {number} of {self.path} is damaged: {error.errors()[0]['msg']}",
                    hint="remove the line; what it said of variants and models is lost",
                ) from error
        return found


def _digests(history: tuple[LineageEntry, ...]) -> set[str]:
    """The stores that a history names: the input of each verb, and merged stores."""
    found = {entry.parent_digest for entry in history if entry.parent_digest is not None}
    for entry in history:
        stores = entry.arguments.get("stores")
        for store in stores if entry.verb == "merge" and isinstance(stores, list) else ():
            found |= _of_merged(json.loads(json.dumps(store)))
    return found


def _of_merged(store: JsonObject) -> set[str]:
    """Digests of a store that was merged, and of its own history."""
    digest, history = store.get("digest"), store.get("lineage")
    found = {digest} if isinstance(digest, str) else set()
    entries = history if isinstance(history, list) else []
    try:
        return found | _digests(tuple(LineageEntry.model_validate_json(json.dumps(each)) for each in entries))
    except (ValidationError, RecursionError) as error:
        raise DataError(
            f"the lineage of the merged store {digest!r} is damaged: {str(error).splitlines()[0]}",
            hint="merge its stores again",
        ) from error
