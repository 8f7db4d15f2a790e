"""Read a dataset from the Hub: trajkit's own as the stores that were pushed, other datasets by import."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trajkit._core.files import building_folder, refuse_existing, sha256_file
from trajkit._core.output.console import line, plural
from trajkit._core.output.result import Result
from trajkit._core.outside import name_from_outside, yaml_from_outside
from trajkit.errors import DataError, RequestError, StoreError
from trajkit.publishing.files.restore import restore
from trajkit.publishing.hub import Hub, HubFault, Remote, Repository, checked_name
from trajkit.publishing.record import RECORD, PublishedStore, Record, read_record
from trajkit.schema import LineageEntry, Manifest, Model
from trajkit.schema.base import JsonObject, Name
from trajkit.sources.files.importing import Imported, Wish, import_files
from trajkit.store.layout import TABLES
from trajkit.store.reader import open_store
from trajkit.store.tally import tally_text

_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)\n---[ \t\r]*(\n|\Z)", re.DOTALL)

Content = TypeVar("Content")
OnProgress = Callable[[str, int, int | None], None]
BRANCH = "refs/convert/parquet"
"""Branch where the Hub keeps its Parquet conversion, as `CONFIGURATION/SPLIT/0000.parquet`."""
_PARTIAL = "partial-"
DATA = (".parquet", ".jsonl", ".ndjson", ".json")
"""Endings of data files."""
_NO_DATA = re.compile(r"(^|/)(dataset_infos?|state|config|\.[^/]*)\.json$|^trajkit\.json$")


class PulledStore(Model):
    """A store that was written."""

    split: Name | None
    """Name of the split; None for a dataset that trajkit did not push."""
    path: Path
    """Folder of the store."""
    digest: Name
    """Digest of its content."""
    n_episodes: int
    """Number of episodes."""
    n_steps: int
    """Number of steps."""

    def __str__(self) -> str:
        counts = f"{plural(self.n_episodes, 'episode')}  {plural(self.n_steps, 'step')}"
        return line(f"{self.path}  {counts}  digest {self.digest[:12]}")


class Pulled(Result, Model):
    """The result of a pull."""

    repository: Name
    """Repository that was read."""
    commit: Name
    """The commit that was read."""
    stores: tuple[PulledStore, ...]
    """Stores that were written."""
    imported: Imported | None = None
    """Counts of an import; None if trajkit pushed the dataset."""
    entry: LineageEntry | None = None
    """Lineage entry of the import."""

    def __str__(self) -> str:
        tally = [] if self.entry is None else [tally_text(self.entry)]
        return "\n".join((*tally, *map(str, self.stores)))


def pull(
    hub: Hub,
    repository: str,
    goal: Path,
    *,
    revision: str | None = None,
    configuration: str | None = None,
    splits: Sequence[str] = (),
    wish: Wish | None = None,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> Pulled:
    """Read a dataset from the Hub into a store, or a folder with a store per split if there are several.

    Args:
        hub: The Hub.
        repository: Name as `owner/name`.
        goal: Path of the new store or folder.
        revision: A commit, branch or tag; None for the newest commit.
        configuration: Configuration of a dataset that trajkit did not push; None for its default.
        splits: Splits to read; empty for all.
        wish: How to import such a dataset; None to detect its format.
        on_progress: Called with the progress, in files.

    Raises:
        RequestError: There is no such dataset, revision, configuration or split.
        StoreError: The files differ from what was pushed, `goal` exists, or the store is of a newer version.
        DataError: The files cannot be read as episodes.
        HubFault: The Hub refused or does not answer.
    """
    checked_name(repository)
    refuse_existing(goal)
    source = hub.repository(repository, "dataset")
    remote = source.look(revision)
    if remote is None:
        raise RequestError(
            f"there is no dataset {repository}, or the token may not see it",
            hint="check the name; a private dataset needs HF_TOKEN",
        )
    goal.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=goal.absolute().parent, prefix=".pull-") as folder:
        work = Path(folder) / f"{repository.replace('/', '--')}@{remote.commit[:12]}"
        asked = _Asked(source, remote, work, goal, splits, on_progress)
        if RECORD in remote.files:
            return _ours(asked)
        return _theirs(asked, configuration, wish or Wish(), is_newest=revision is None)


class _Asked(NamedTuple):
    source: Repository
    remote: Remote
    work: Path
    """Folder for downloads."""
    goal: Path
    splits: Sequence[str]
    on_progress: OnProgress

    def load(self, name: str, folder: Path) -> Path:
        return self.source.download(name, self.remote.commit, folder)


def _ours(asked: _Asked) -> Pulled:
    repository, goal = asked.source.name, asked.goal
    record = read_record(asked.load(RECORD, asked.work).read_bytes(), f"{RECORD} of {repository}")
    chosen = _chosen(record, repository, asked.splits)
    wanted = [name for store in chosen for names in store.files.values() for name in names]
    _download(asked, asked.work, {file.path: file.sha256 for file in record.files}, wanted)
    where = {"repository": f"{repository}@{asked.remote.commit}"}

    def made(store: PublishedStore, at: Path) -> Manifest:
        return restore(asked.work, store, at, where={**where, "split": store.split})

    if len(chosen) == 1:
        manifests = [made(chosen[0], goal)]
        paths = [goal]
    else:
        with building_folder(goal.absolute()) as folder:
            manifests = [made(store, folder / store.split) for store in chosen]
        paths = [goal / store.split for store in chosen]
    return Pulled(
        repository=repository,
        commit=asked.remote.commit,
        stores=tuple(
            _pulled(store.split, path, manifest)
            for store, path, manifest in zip(chosen, paths, manifests, strict=True)
        ),
    )


def _theirs(asked: _Asked, configuration: str | None, wish: Wish, *, is_newest: bool) -> Pulled:
    names = data_files(asked.remote.files, _card(asked), configuration, asked.splits)
    made = converted(asked.source) if not names and is_newest else None
    if made is not None:
        asked, names = asked._replace(remote=made), converted_files(made.files, configuration, asked.splits)
    if not names:
        raise RequestError(
            f"{asked.source.name} has no files that trajkit reads",
            hint=f"files of conversations or traces end in {', '.join(DATA)}",
        )
    data = asked.work.parent / "files" / asked.work.name
    _download(asked, data, None, names)
    pulled: JsonObject = {"repository": f"{asked.source.name}@{asked.remote.commit}"}
    if configuration is not None:
        pulled["config"] = configuration
    if asked.splits:
        pulled["split"] = list(asked.splits)
    imported, entry = import_files(data, asked.goal, wish, pulled=pulled, on_progress=asked.on_progress)
    manifest = open_store(asked.goal).manifest
    return Pulled(
        repository=asked.source.name,
        commit=asked.remote.commit,
        stores=(_pulled(None, asked.goal, manifest),),
        imported=imported,
        entry=entry,
    )


def _card(asked: _Asked) -> dict[str, Any]:
    """Return the metadata of the card; empty if there is no card or it is broken."""
    if "README.md" not in asked.remote.files:
        return {}
    found = _FRONT.match(asked.load("README.md", asked.work).read_text(encoding="utf-8", errors="replace"))
    try:
        value = yaml_from_outside(found[1], where="README.md") if found else None
    except DataError:
        return {}
    return value if isinstance(value, dict) else {}


def _chosen(record: Record, repository: str, splits: Sequence[str]) -> list[PublishedStore]:
    by_split = {store.split: store for store in record.stores}
    if not by_split:
        raise RequestError(f"{repository} holds no store")
    wanted = _wanted(repository, by_split, splits)
    for store in by_split.values():
        if any(table not in (*TABLES, "moved") for table in store.files):
            raise StoreError(
                f"{repository} has tables that this trajkit cannot read", hint="pip install -U trajkit"
            )
    return [*wanted.values()]


def _wanted(name: str, by_split: Mapping[str, Content], splits: Sequence[str]) -> dict[str, Content]:
    """Return the requested splits; all if none was requested."""
    if unknown := [split for split in splits if split not in by_split]:
        raise RequestError(f"{name} has no split {unknown[0]!r}", hint=f"there are: {', '.join(by_split)}")
    return {split: content for split, content in by_split.items() if not splits or split in splits}


def _download(asked: _Asked, folder: Path, known: Mapping[str, str] | None, names: Sequence[str]) -> None:
    """Download files; `known` has the sha256 of each, if trajkit pushed them."""
    repository = asked.source.name
    for n_done, name in enumerate(names, start=1):
        for part in name.split("/"):
            name_from_outside(part, what=f"a folder or file of {repository}, in {name!r}")
        if name not in asked.remote.files:
            raise StoreError(f"{repository} at {asked.remote.commit[:12]} has no file {name}")
        path = asked.load(name, folder)
        if known is not None and sha256_file(path) != known.get(name):
            raise StoreError(
                f"{name} of {repository} is not the file that was pushed: its sha256 differs",
                hint="pull an older revision, or have it published again",
            )
        asked.on_progress("downloading", n_done, len(names))


def _pulled(split: str | None, path: Path, manifest: Manifest) -> PulledStore:
    return PulledStore(
        split=split,
        path=path,
        digest=manifest.digest,
        n_episodes=manifest.counts.n_episodes,
        n_steps=manifest.counts.n_steps,
    )


def converted(source: Repository) -> Remote | None:
    """Read the branch of the Hub's Parquet conversion; None if there is none.

    Raises:
        HubFault: The Hub does not answer.
    """
    try:
        return source.look(BRANCH)
    except HubFault as fault:
        if fault.is_absent:
            return None
        raise


def converted_files(files: Iterable[str], configuration: str | None, splits: Sequence[str]) -> list[str]:
    """Return the files of a configuration on that branch.

    Args:
        files: All files of the branch.
        configuration: Name; None for `default`, or else the first by name.
        splits: Splits to read; empty for all.

    Raises:
        RequestError: There is no such configuration or split, or the Hub converted only a part of a split
            that was not requested by name.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(files):
        config, _, rest = path.partition("/")
        split, _, name = rest.partition("/")
        if name.endswith(".parquet"):
            found.setdefault(config, {}).setdefault(split, []).append(path)
    if not found:
        return []
    chosen = configuration or ("default" if "default" in found else next(iter(found)))
    if chosen not in found:
        raise RequestError(f"no configuration {chosen!r}", hint=f"there are: {', '.join(found)}")
    wanted = _wanted(chosen, found[chosen], splits)
    part = next((split for split in wanted if split.startswith(_PARTIAL) and split not in splits), None)
    if part is not None:
        raise RequestError(
            f"the Hub converted only the beginning of {chosen} to Parquet: {part}",
            hint=f"--split {part} reads that part",
        )
    return [name for names in wanted.values() for name in names]


def data_files(
    files: Iterable[str], card: dict[str, Any], configuration: str | None, splits: Sequence[str]
) -> list[str]:
    """Return the files of a configuration, as the card's `configs` name them; without those, every data file.

    Args:
        files: Files of the repository.
        card: Metadata of its card.
        configuration: Name; None for the default.
        splits: Splits to read; empty for all.

    Raises:
        RequestError: There is no such configuration or split.
    """
    data = sorted(path for path in files if path.endswith(DATA) and not _NO_DATA.search(path))
    if not data:
        return []
    configs = [each for each in card.get("configs") or () if isinstance(each, dict)]
    if not configs:
        if configuration is not None:
            raise RequestError(f"no configuration {configuration!r}", hint="the dataset names none")
        chosen = [path for path in data if not splits or _is_of_split(path, splits)]
        if not chosen:
            files = ", ".join(data[:5]) + (", ..." if len(data) > 5 else "")
            raise RequestError(f"no file is named for {', '.join(splits)}", hint=f"files: {files}")
        return chosen
    by_name = {_text(each.get("config_name")): each for each in configs}
    if configuration is not None and configuration not in by_name:
        raise RequestError(f"no configuration {configuration!r}", hint=f"there are: {', '.join(by_name)}")
    default = next((name for name, each in by_name.items() if each.get("default")), None)
    name = configuration or default or ("default" if "default" in by_name else next(iter(by_name)))
    patterns = dict(_patterns(by_name[name].get("data_files")))
    wanted = [each for many in _wanted(name, patterns, splits).values() for each in many]
    return [path for path in data if any(_fits(path, pattern) for pattern in wanted)]


def _patterns(value: Any) -> Iterable[tuple[str, list[str]]]:
    """Return patterns by split; `data_files` may be a pattern, a list of them, or one per split."""
    if isinstance(value, str):
        yield "train", [value]
        return
    plain: list[str] = []
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            path = each.get("path")
            paths = path if isinstance(path, list) else [path]
            yield _text(each.get("split", "train")), [one for one in paths if isinstance(one, str)]
        elif isinstance(each, str):
            plain.append(each)
    if plain:
        yield "train", plain


def _text(value: Any) -> str:
    """Return a name of a card as text. Lists give "": YAML's aliases can make endless ones."""
    return str(value) if isinstance(value, str | int | float | bool) else ""


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))


def _is_of_split(path: str, splits: Sequence[str]) -> bool:
    words = re.split(r"[^A-Za-z0-9]+", path.rpartition(".")[0])
    return any(split in words for split in splits)
