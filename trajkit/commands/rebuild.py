"""Repeat the history of a store, and check that the result is the same store."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.address import Address, local_copy, place_of
from trajkit._core.files import make_parent, refuse_existing, sha256_file
from trajkit._core.output import console
from trajkit._core.output.console import confirm, line, plural, talk
from trajkit._core.output.result import Result
from trajkit._core.sending import send
from trajkit._core.settings import STATE_FOLDER, project, remember, remembered
from trajkit.commands.history import (
    SHORT,
    Shelves,
    Unrepeatable,
    Version,
    history,
    opened,
    others_of,
    verb_of,
    words_of,
)
from trajkit.commands.options.types import NewPath, Option, Place, StoreLike
from trajkit.commands.place import catalog, remember_store
from trajkit.commands.recipe.verb import call, find
from trajkit.commands.result import store_line
from trajkit.errors import DataError, StoreError, TrajkitError
from trajkit.store.tally import as_recorded, quoted

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry, Manifest

_FORGET = "forget"
_CODE = {"score": "with", "replay": "env", "import": "from"}
"""Options that name user code, by command."""


@dataclass(eq=False)
class Step:
    """A store of the plan: one that exists, or one that is made again."""

    version: Version
    """The version of the history."""
    place: str | None = None
    """Where the store is; None if it must be made."""
    parents: list[Step] = field(default_factory=list)
    """The steps that it is made from."""
    command: str | None = None
    """The command that makes it, with the beginnings of digests for stores made before it."""
    missing: str | None = None
    """Why it cannot be made; None if it can."""
    code: str | None = None
    """The user code that the command runs; None for none."""

    @property
    def name(self) -> str:
        """Where the store is, or the beginning of its digest."""
        return self.place or (self.version.digest or "unknown")[:SHORT]

    def to_json(self) -> dict[str, Any]:
        """The step without its parents."""
        return {
            "digest": self.version.digest,
            "place": self.place,
            "command": self.command,
            "missing": self.missing,
            "code": self.code,
        }


@dataclass(frozen=True)
class Rebuilt(Result):
    """The plan, and the resulting store."""

    steps: tuple[Step, ...]
    """The steps in their order."""
    digest: str
    """The digest of the store, before and after."""
    path: Path | None = None
    """The new store; None if none was made."""
    manifest: Manifest | None = None
    """Its manifest."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What no longer exists, or cannot be repeated."""
        return tuple(each.missing for each in self.steps if each.missing is not None)

    @property
    def failure(self) -> DataError | None:
        """The error that names what is missing; None if nothing is."""
        if not self.missing:
            return None
        return DataError(
            f"it cannot be rebuilt: {'; '.join(self.missing)}",
            hint="--from FOLDER names more folders with stores, --source URL|ARCHIVE a database",
        )

    def to_json(self) -> dict[str, Any]:
        """The steps, and the store."""
        return {
            "store": None if self.path is None else str(self.path),
            "digest": self.digest,
            "steps": [each.to_json() for each in self.steps],
            "missing": list(self.missing),
        }

    def __str__(self) -> str:
        if self.path is not None and self.manifest is not None:
            return store_line(self.path, self.manifest)
        return "\n".join(map(line, self.lines()))

    def lines(self) -> Iterator[str]:
        """The plan, a line for each step."""
        for number, each in enumerate(self.steps, start=1):
            text = f"{each.place} is there" if each.place else each.command or "nothing is known of it"
            yield f"{number:2}  {(each.version.digest or 'unknown')[:SHORT]}  {text}"
            if each.missing is not None:
                yield f"    missing: {each.missing}"


def rebuild(
    store: StoreLike,
    *,
    output: NewPath,
    from_: Annotated[Place | Sequence[Place], Option(is_repeated=True, metavar="FOLDER")] = (),
    source: Annotated[str | None, Option(metavar="URL|ARCHIVE")] = None,
    dry_run: bool = False,
    yes: bool = False,
) -> Rebuilt:
    """Make a store again from its history, and check that it has the same digest.

    The plan is printed first: each command, and what it reads. It begins with the nearest ancestors that
    exist: a tagged store, one below the folder of stores or --from, or sample:NAME. Exports read --source,
    else what `trajkit export` would read, until the time of the old export; imports read the same file; pulls
    the same commit. If something does not exist, it is named and nothing is done. Episodes that `trajkit
    forget` removed are not restored.

    Rollouts, evaluations and training runs are not repeated, as models may answer differently; nor is a
    redaction with your own patterns, whose values no history has, or an entry with options that this trajkit
    does not have. A score runs your function again.

    Args:
        store: The store, or its `manifest.json` alone.
        output: The store to write.
        from_: Also look for stores below this folder. May be repeated.
        source: What exports read.
        dry_run: Print the plan and write nothing.
        yes: Do not ask before user code runs.

    Raises:
        DataError: A source is missing, a step cannot be repeated, or the digest differs.
        StoreError: There is no manifest, or `output` exists.

    Example:
        trajkit rebuild stores/sides/train -o stores/again --dry-run
    """
    import duckdb

    from trajkit.store.reader import open_store

    place, manifest = opened(store)
    goal = place_of(output)
    refuse_existing(goal)
    folders = [Path(from_)] if isinstance(from_, str | Path) else list(map(Path, from_))
    shelves = Shelves(folders, but=place_of(place))
    with contextlib.suppress(StoreError, duckdb.Error):  # a damaged store can be rebuilt, too
        _refuse_forgotten(place_of(place), shelves.forgotten)
    try:
        steps = _Plan(shelves, source).of(history(manifest))
    except RecursionError:
        raise DataError(f"the history of {place} has more commands than can be followed") from None
    found = Rebuilt(tuple(steps), manifest.digest)
    if dry_run:
        talk("dry run: nothing was written")
        return found
    if found.failure is not None:
        raise DataError(found.failure.message, hint=found.failure.hint, result=found)
    for text in found.lines():
        talk(text)
    if code := [each.code for each in steps if each.code is not None]:
        confirm(
            f"Run {', '.join(code)}?",
            yes=yes,
            verb="runs it",
            refused="nothing was written",
            unasked=f"this runs {', '.join(code)}, and there is no terminal to ask on",
        )
    before = remembered("last_store")
    try:
        _carry_out(steps, goal, shelves, source)
    finally:
        if before is None:
            (STATE_FOLDER / "last_store.json").unlink(missing_ok=True)
        else:
            remember("last_store", before)
    remember_store(goal)
    return Rebuilt(tuple(steps), manifest.digest, goal, open_store(goal).manifest)


class _Plan:
    """Finds the steps that lead to a store.

    Args:
        shelves: Where stores are found.
        source: What exports read; None for what `trajkit export` would.
    """

    def __init__(self, shelves: Shelves, source: str | None) -> None:
        self._shelves = shelves
        self._source = source
        self._steps: dict[int, Step] = {}

    def of(self, goal: Version) -> list[Step]:
        """Return the steps in their order; the last one makes the store."""
        self._add(goal, is_goal=True)
        return list(dict.fromkeys(self._steps.values()))

    def _add(self, version: Version, *, is_goal: bool = False) -> Step:
        if id(version) not in self._steps:
            place = None if is_goal else self._shelves.find(version.digest)
            step = Step(version, place) if place is not None else self._made(version)
            self._steps[id(version)] = step
        return self._steps[id(version)]

    def _made(self, version: Version) -> Step:
        entry, step = version.entry, Step(version)
        if entry is None:
            step.missing = f"the store {step.name}"
            return step
        if entry.verb == "pull":
            step.missing = _unreachable(entry)
            if step.missing is not None and version.parents:  # a pull changes nothing
                return self._add(version.parents[0])
        try:
            if entry.verb != _FORGET:
                verb_of(entry)
            if entry.verb != "pull":
                step.parents = [self._add(each) for each in version.parents]
            step.command = self._command(step)
            step.missing = step.missing or self._missing(step)
            step.code = _code_of(entry)
        except Unrepeatable as error:
            step.missing = f"{step.name}: {error}"
        return step

    def _command(self, step: Step) -> str:
        entry = step.version.entry
        assert entry is not None
        parents = [each.name for each in step.parents]
        if entry.verb == _FORGET:
            return f"{as_recorded(entry)} of {parents[0]}"
        words_of(step.version, parents, self._shelves.named, output=Path("checked"))  # raises what is wrong
        words = words_of(step.version, parents, self._shelves.named, source=self._source)
        return " ".join(["trajkit", *map(quoted, words)])

    def _missing(self, step: Step) -> str | None:
        """What is missing of a step's inputs, besides those that earlier steps make."""
        entry = step.version.entry
        assert entry is not None
        for name, digest in others_of(entry).items():
            if self._shelves.find(digest) is None:
                return f"the store {digest[:SHORT]}, which --{name} names"
        if entry.verb == _FORGET and not self._shelves.forgotten:
            return f"the forgotten episodes, which {catalog().path} does not name"
        if entry.verb == "export" and not step.parents:
            return _silent(self._source)
        path = entry.arguments.get("path")
        if entry.verb == "import" and isinstance(path, str) and "://" not in path and not Path(path).exists():
            return f"{path}, which was imported"
        return _other_code(entry)


def _silent(source: str | None) -> str | None:
    """Why no database or archive can be read; None if one can."""
    from trajkit.sources.open import find_source, open_source
    from trajkit.store.reader import open_store

    try:
        location = find_source(source, project())
        if location.is_tensorzero:
            with contextlib.closing(open_source(location)):
                return None
        open_store(location.value.get_secret_value())
    except TrajkitError as error:
        return f"the source of the export: {error.message}"
    return None


def _unreachable(entry: LineageEntry) -> str | None:
    """Why a commit of the Hub cannot be read; None if it can."""
    from trajkit.publishing.hub import Hub, found_token

    repository, _, commit = str(entry.arguments.get("repository")).partition("@")
    try:
        is_there = Hub(found_token()).repository(repository, "dataset").look(commit or None) is not None
    except TrajkitError as error:
        return f"the dataset {repository}: {error.message}"
    return None if is_there else f"the dataset {repository} at {commit[:SHORT]}"


def _code_of(entry: LineageEntry) -> str | None:
    """The user code that an entry names."""
    named = entry.arguments.get(_CODE.get(entry.verb, ""))
    return named if isinstance(named, str) and ":" in named else None


def _other_code(entry: LineageEntry) -> str | None:
    """Why the file of a scorer is not the one that scored; None if it is, or if unknown."""
    named, sha256 = _code_of(entry), entry.result.get("source_sha256")
    file = Path((named or "").rpartition(":")[0])
    if file.suffix != ".py" or sha256 is None:
        return None
    if not file.is_file():
        return f"{file}, which scored"
    return None if sha256_file(file) == sha256 else f"the {file} that scored: it has changed since"


def _carry_out(steps: Sequence[Step], goal: Path, shelves: Shelves, source: str | None) -> None:
    """Make the missing stores, one after another; the last one becomes the goal."""
    from trajkit.store.reader import open_store

    is_here = not isinstance(goal, Address)
    if is_here:
        make_parent(goal.absolute())
    with tempfile.TemporaryDirectory(
        dir=goal.absolute().parent if is_here else None, prefix=".rebuild-"
    ) as work:
        made = {id(each): place_of(each.place) for each in steps if each.place is not None}
        for number, step in enumerate(steps, start=1):
            if step.place is not None:
                continue
            talk(f"{number} of {len(steps)}: {step.command}")
            folder = Path(work) / str(number)
            folder.mkdir()
            parents = [str(made[id(each)]) for each in step.parents]
            made[id(step)] = _remade(step, parents, folder / goal.name, shelves, source)
        last = made[id(steps[-1])]
        if steps[-1].place is not None:  # what a pull brought is somewhere else too
            with local_copy(str(open_store(last).path)) as here:
                last = Path(work) / "copy"
                shutil.copytree(here, last)
        _refuse_forgotten(last, shelves.forgotten)
        refuse_existing(goal)
        settle = Path.rename if is_here else send
        for beside in last.parent.glob(f"{last.name}.*"):  # a list of duplicates, which belongs to the store
            if beside.is_file():
                refuse_existing(goal.with_name(beside.name))
                settle(beside, goal.with_name(beside.name))
        settle(last, goal)


def _remade(step: Step, parents: Sequence[str], output: Path, shelves: Shelves, source: str | None) -> Path:
    """Make the store of a step, and return where it is.

    Raises:
        DataError: The command failed, or made another store.
    """
    from trajkit.store.catalog import stores_in

    version = step.version
    entry = version.entry
    assert entry is not None
    try:
        if entry.verb == _FORGET:
            from trajkit.curation.forget import forget

            forget(Path(parents[0]), shelves.forgotten, output)
        else:
            words = words_of(version, parents, shelves.named, source=source, output=output)
            verb = find(words[0])
            assert verb is not None
            with console.quiet(), contextlib.redirect_stdout(io.StringIO()):
                call(verb, words[1:])
    except TrajkitError as error:
        raise DataError(f"`{step.command}` failed: {error.message}", hint=error.hint) from error
    stores = list(stores_in(output.parent))
    for path, digest in stores:
        if digest == version.digest or (version.digest is None and len(stores) == 1):
            return path
    others = ", ".join(digest[:SHORT] for _, digest in stores)
    raise DataError(
        f"`{step.command}` made {others or 'no store'}, not {step.name}",
        hint=f"its source has changed, or trajkit {entry.trajkit_version} worked differently",
    )


def _refuse_forgotten(store: Path, hashes: Collection[str]) -> None:
    """Refuse a store with an episode that was forgotten since.

    Raises:
        DataError: It has one.
    """
    from trajkit.curation.forget import in_store

    n = in_store(store, hashes).n_episodes if hashes else 0
    if n:
        raise DataError(
            f"{plural(n, 'episode')} of it {'was' if n == 1 else 'were'} forgotten since: it is not rebuilt",
            hint="`trajkit forget` wrote a store without them, which can be rebuilt",
        )
