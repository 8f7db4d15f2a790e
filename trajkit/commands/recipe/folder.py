"""The folder of a recipe's run: the recipe as it ran, and the outcome of each step."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from trajkit._core.files import building_folder, sha256_file, write_text
from trajkit._core.outside import regular_file
from trajkit._core.samples import SAMPLE_PREFIX, samples
from trajkit.commands.place import store_path
from trajkit.commands.recipe.load import Loaded
from trajkit.commands.recipe.recipe import Recipe, flat, folded
from trajkit.commands.recipe.yaml_text import read_yaml, write_yaml
from trajkit.errors import DataError, RequestError, TrajkitError
from trajkit.schema import Model
from trajkit.schema.base import JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.store.layout import MANIFEST_NAME
from trajkit.training.origin import code_commit, versions_of

RECIPE_FILE, FACTS_FILE, STEPS_FOLDER, LOCK = "recipe.yaml", "run.json", "steps", "lock"
Kind = TypeVar("Kind", bound=Model)
_DECIDING = ("duckdb", "pyarrow", "tensorzero", "torch", "transformers", "peft", "openai")
_MODEL_FILE = "config.json"
_BIG = 64_000_000
"""Larger files are compared by size and time of change: reading weights is slower than most steps."""


class StepStatus(StrEnum):
    """State of a step."""

    RUNNING = "running"
    """It was started, and has not ended."""
    DONE = "done"
    """It succeeded."""
    FAILED = "failed"
    """It failed."""
    STOPPED = "stopped"
    """The user stopped it."""


class StepRecord(Model):
    """The outcome of a step, as `steps/NAME.json` keeps it."""

    name: Name
    """Its name."""
    verb: Name
    """The command."""
    arguments: tuple[str, ...]
    """What was typed after it."""
    inputs: dict[str, str] = {}
    """Digests of what it read, by the step, the file or the path."""
    output: Text | None = None
    """Its output, relative to the run folder; for a job its name. None for none."""
    output_digest: str | None = None
    """Digest of that, once it is done."""
    status: StepStatus
    """Its state."""
    exit_code: int | None = None
    """The command's, once it ended."""
    error: Text | None = None
    """Why it failed."""
    hint: Text | None = None
    """How to fix it."""
    versions: dict[str, str] = {}
    """Versions of what ran it."""
    started_at: UtcTime
    """When it was started."""
    finished_at: UtcTime | None = None
    """When it ended."""


class RunFacts(Model):
    """The inputs of a run, as `run.json` keeps them."""

    recipe: Name
    """Name of the recipe."""
    source: Text
    """Its file."""
    sha256: Sha256
    """Of that file's bytes."""
    settings: dict[str, str] = {}
    """What --set changed, by path."""
    files: dict[str, Sha256] = {}
    """Digests of the files that were copied, by name."""
    versions: dict[str, str]
    """Versions of what ran it."""
    code_commit: Text | None
    """Commit of the working folder's repository; None outside of one."""
    created_at: UtcTime
    """When it began."""


class RunFolder:
    """The folder of a run.

    Args:
        path: The folder; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_begun(self) -> bool:
        """Whether a run was started here."""
        return (self.path / FACTS_FILE).is_file()

    def refuse_other(self) -> None:
        """Raise unless the folder is new or has a run.

        Raises:
            RequestError: Something else has this name.
        """
        if self.is_begun or not self.path.exists():
            return
        if not self.path.is_dir() or any(self.path.iterdir()):
            raise RequestError(f"{self.path} is not a run folder", hint="choose another -o")

    def begin(self, loaded: Loaded) -> None:
        """Make the folder with the recipe and its files.

        Raises:
            RequestError: A file of the recipe is missing, or something else has the folder's name.
        """
        self.refuse_other()
        sources = file_sources(loaded)
        for name, source in sources.items():
            if self.path.resolve().is_relative_to(source.resolve()):
                raise loaded.located.error(("files", name), f"{source} would hold the run {self.path} itself")
        facts = RunFacts(
            recipe=loaded.recipe.name,
            source=str(loaded.located.path),
            sha256=digest_of(loaded.located.path),
            settings=dict(loaded.settings),
            files={name: digest_of(source) for name, source in sources.items()},
            versions=versions(),
            code_commit=code_commit(),
            created_at=datetime.now(UTC),
        )
        if self.path.exists():
            self.path.rmdir()
        with building_folder(self.path) as folder:
            for name, source in sources.items():
                _copy(source, folder / name)
            (folder / STEPS_FOLDER).mkdir()
            (folder / RECIPE_FILE).write_text(_locked(loaded, sources), encoding="utf-8")
            (folder / FACTS_FILE).write_text(facts.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def facts(self) -> RunFacts:
        """The inputs of the run.

        Raises:
            DataError: The file is damaged.
        """
        return _read(RunFacts, self.path / FACTS_FILE)

    def differences(self, loaded: Loaded) -> list[str]:
        """How a recipe differs from the run's, in words; none if it is the same."""
        before = Recipe.model_validate(folded(read_yaml(self.path / RECIPE_FILE).data))
        found = list(_differences(before, loaded.recipe))
        digests = self.facts().files
        for name, source in file_sources(loaded).items():
            if name in digests and digest_of(source) != digests[name]:
                found.append(f"{source} has changed")
        return found

    def record(self, name: str) -> StepRecord | None:
        """The outcome of a step; None if it was never started.

        Raises:
            DataError: The file is damaged.
        """
        path = self.path / STEPS_FOLDER / f"{name}.json"
        return _read(StepRecord, path) if path.is_file() else None

    def save(self, record: StepRecord) -> None:
        """Write the outcome of a step immediately."""
        path = self.path / STEPS_FOLDER / f"{record.name}.json"
        write_text(path, record.model_dump_json(indent=2) + "\n")


def file_sources(loaded: Loaded) -> dict[str, Path]:
    """Where the files of a recipe are.

    Raises:
        ConfigError: One is missing, not a regular file, or a link that leads out of its folder.
    """
    folder = loaded.located.path.absolute().parent
    found = {}
    for name, text in loaded.recipe.files.items():
        found[name] = folder / text
        if not found[name].exists():
            raise loaded.located.error(("files", name), f"{found[name]} does not exist")
        try:
            for each in found[name].rglob("*") if found[name].is_dir() else [found[name]]:
                if each.is_symlink() or not each.is_dir():
                    regular_file(each, within=found[name] if found[name].is_dir() else found[name].parent)
        except DataError as error:
            raise loaded.located.error(("files", name), error.message) from error
    return found


def _copy(source: Path, goal: Path) -> None:
    try:
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, goal)
    except OSError as error:
        first = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise RequestError(f"{source} cannot be copied: {first}") from error


def versions() -> dict[str, str]:
    """Versions of what decides the result."""
    return {"python": sys.version.split()[0], **versions_of(_DECIDING)}


def _locked(loaded: Loaded, sources: dict[str, Path]) -> str:
    recipe = loaded.recipe
    said: JsonObject = recipe.model_dump(
        mode="json", exclude={"files", "steps"}, exclude_none=True, exclude_defaults=True
    )
    head = (
        "# What this run does. `trajkit run recipe.yaml -o ANOTHER` repeats it; changes here do not affect"
        " the run.\n"
    )
    files = {"files": {name: str(source) for name, source in sources.items()}} if sources else {}
    steps = {name: flat(step) for name, step in recipe.steps.items()}
    return head + write_yaml({**said, **files, "steps": steps})


def _differences(before: Recipe, now: Recipe) -> Iterator[str]:
    if before.name != now.name:
        yield f"the run is one of {before.name}, this is {now.name}"
        return
    if set(before.files) != set(now.files):
        yield f"files were {', '.join(before.files) or 'none'}, are {', '.join(now.files) or 'none'}"
    for name in before.steps:
        if name not in now.steps:
            yield f"step {name} is gone"
    for name, step in now.steps.items():
        if name not in before.steps:
            yield f"step {name} is new"
            continue
        old, new = flat(before.steps[name]), flat(step)
        for option in dict.fromkeys([*old, *new]):
            if str(old.get(option)) != str(new.get(option)):
                yield f"{name}.{option} was {_shown(old, option)}, is {_shown(new, option)}"
    common = [name for name in now.steps if name in before.steps]
    if common != [name for name in before.steps if name in now.steps]:
        yield "the steps have another order"


def _shown(options: JsonObject, name: str) -> str:
    return str(options[name]) if options.get(name) is not None else "not given"


def _read(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {str(error).splitlines()[0]}") from error


def digest_of(path: Path) -> str:
    """The digest of a file's bytes, of a store's content, or of every file below a folder with its name."""
    from trajkit.store.catalog import digest_at

    if path.is_file():
        status = path.stat()
        if status.st_size <= _BIG:
            return sha256_file(path)
        return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
    if (digest := digest_at(path)) is not None:
        return digest
    total = hashlib.sha256()
    for each in sorted(path.iterdir()) if path.is_dir() else ():  # no device or FIFO is opened
        is_loop = each.is_symlink() and each.is_dir()  # or may be one
        total.update(f"{each.name}\0{each.readlink() if is_loop else digest_of(each)}\n".encode())
    return total.hexdigest()


def input_path(text: str) -> Path | None:
    """The path that an option's value names: a store, a model, a file or a folder; else None.

    `@NAME` is the store of that tag. A bare word that is also a folder's name is taken as a word; for
    `file.py:name` the file counts.
    """
    if text.startswith("@"):
        try:
            text = store_path(text)
        except TrajkitError:  # no tag: some other text
            return None
    if text.startswith(SAMPLE_PREFIX):
        name = text.removeprefix(SAMPLE_PREFIX)
        return samples(MANIFEST_NAME).get(name) or samples(_MODEL_FILE).get(name)
    if not text or "\n" in text or "://" in text:
        return None
    file, has_name, _ = text.rpartition(":")
    path = Path(file if has_name and file.endswith(".py") else text)
    try:
        is_whole = path.is_file() or any((path / name).is_file() for name in (MANIFEST_NAME, _MODEL_FILE))
        return path if is_whole or (len(path.parts) > 1 and path.is_dir()) else None
    except (OSError, ValueError):  # too long for a name, or no name at all
        return None
