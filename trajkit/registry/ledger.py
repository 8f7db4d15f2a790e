"""Record which model was trained on which data with which recipe, and which variants use it.

The ledger is one append-only file of lines in the folder of the jobs. A registration stays in it when the
job's folder, the store or the variant is deleted.
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
    """The data that a model was trained or validated on."""

    store: Path
    """Absolute path of the store."""
    digest: Sha256
    """Digest of its content."""
    n_episodes: Count
    """Number of episodes."""
    n_steps: Count
    """Number of steps."""
    n_learned: Count
    """Number of steps whose completions the rows train."""
    rows: Path | None = None
    """File with the row of each step; None if there is none."""
    history: tuple[LineageEntry, ...] = ()
    """Lineage of the store, oldest first; empty when the store was already deleted."""

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the store and of all its ancestors."""
        return frozenset({self.digest, *_digests(self.history)})


class TunedModel(Model):
    """A model and its origin."""

    name: Name
    """Name of the model in a configuration or a client."""
    names: tuple[Name, ...] = ()
    """Other names: at its service, its folder, and those of its checkpoints."""
    job_id: Name | None = None
    """The job that trained it; None when it was tuned elsewhere."""
    job_key: Sha256 | None = None
    """Key of that job's plan."""
    target: Name | None = None
    """Target that trained it."""
    method: Name | None = None
    """Training method."""
    base: Name | None = None
    """The base model."""
    recipe: JsonObject = {}
    """All other settings of the training."""
    train: Learned | None = None
    """Training data; None when unknown."""
    validation: Learned | None = None
    """Validation data."""

    @property
    def all_names(self) -> frozenset[str]:
        """All names of the model."""
        return frozenset(name for name in (self.name, *self.names, self.job_id) if name is not None)


class Registration(Model):
    """A variant that was added to a configuration."""

    kind: Literal["registration"] = "registration"
    registration_id: Name
    """Id of the registration in this ledger."""
    model: TunedModel
    """The model of the variant."""
    function: Name | None = None
    """Function of the variant; None with a gateway that has no functions, such as LiteLLM."""
    variant: Name
    """Name of the variant, or of the model as clients of the gateway call it."""
    template_variant: Name | None = None
    """The variant whose prompts it uses; None with a gateway that has no prompts."""
    config: Name
    """The configuration: absolute path of a file, or a pattern of several files."""
    files: tuple[ChangedFile, ...] = ()
    """The written files, with the data to undo the change."""
    registered_at: UtcTime
    """Time of the registration."""
    trajkit_version: Name
    """Version of trajkit that wrote it."""

    @property
    def title(self) -> str:
        """Function and variant, or the name alone."""
        return self.variant if self.function is None else f"{self.function}/{self.variant}"


class Undone(Model):
    """The undo of a registration."""

    kind: Literal["undone"] = "undone"
    registration_id: Name
    """Id of the registration."""
    undone_at: UtcTime
    """Time of the undo."""


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
        """Append a line in one write, so that concurrent writers lose nothing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = f"{line.model_dump_json()}\n".encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def registrations(self) -> list[Registration]:
        """Return every registration, the newest first, including those that were undone."""
        return [line for line in reversed(self._lines()) if isinstance(line, Registration)]

    def undone(self) -> dict[str, Undone]:
        """Return the undone registrations, by id."""
        return {line.registration_id: line for line in self._lines() if isinstance(line, Undone)}

    def standing(self) -> list[Registration]:
        """Return the registrations that were not undone, the newest first."""
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
                    hint="remove the line; its variant and model are lost to lineage",
                ) from error
        return found


def _digests(history: tuple[LineageEntry, ...]) -> set[str]:
    """Return the digests in a history: the input of each command, and merged stores."""
    found = {entry.parent_digest for entry in history if entry.parent_digest is not None}
    for entry in history:
        stores = entry.arguments.get("stores")
        for store in stores if entry.verb == "merge" and isinstance(stores, list) else ():
            found |= _of_merged(json.loads(json.dumps(store)))
    return found


def _of_merged(store: JsonObject) -> set[str]:
    """Return the digests of a merged store and of its history."""
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
