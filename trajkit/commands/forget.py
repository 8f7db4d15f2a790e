"""Answer a deletion request: which stores and models have some episodes, and the stores without them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.files import make_parent
from trajkit._core.output import console
from trajkit._core.output.console import Cell, confirm, count, line, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import File, LocalOutput, Option, Place, RunsFolder, many
from trajkit.commands.place import near, path_or_none
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.forget import Holder


@dataclass(frozen=True)
class Forgotten(Result):
    """Where the episodes are, and what was done."""

    held: tuple[Holder, ...]
    """The stores and pairs that have them."""
    models: tuple[str, ...]
    """The models that learned from them, or were validated on them."""
    unknown: tuple[str, ...]
    """Models whose training data is no longer known, with the reason."""
    written: dict[Path, Path]
    """By store, the new one without the episodes."""
    deleted: tuple[Path, ...] = ()
    """Folders that were deleted."""

    def to_json(self) -> dict[str, Any]:
        """All of it, with paths as texts."""
        return {
            "held": [{**each._asdict(), "path": str(each.path)} for each in self.held],
            "models": list(self.models),
            "unknown": list(self.unknown),
            "written": {str(old): str(new) for old, new in self.written.items()},
            "deleted": list(map(str, self.deleted)),
        }

    def __str__(self) -> str:
        return "\n".join(map(line, self._lines()))

    def _lines(self) -> Iterator[str]:
        columns = [
            Cell("where"),
            Cell("episodes", is_number=True),
            Cell("others", is_number=True),
            Cell("now"),
        ]
        rows = [
            (str(near(each.path)), count(each.n_episodes), count(each.n_others), self._now(each))
            for each in self.held
        ]
        yield from table_text(columns, rows).splitlines()
        for name in self.models:
            yield f"model     {name} has learned from them: train it again without them"
        for text in self.unknown:
            yield f"unknown   {text}"

    def _now(self, each: Holder) -> str:
        parts = []
        if each.path in self.written:
            parts.append(f"written without them: {near(self.written[each.path])}")
        elif each.is_pairs:
            parts.append("pairs: make them again with `trajkit pairs`")
        elif not each.n_others:
            parts.append("it has no other episodes")
        if each.path in self.deleted:
            parts.append("deleted")
        return "; ".join(parts)


def forget(
    episode_ids: Annotated[Iterable[str], Option(is_repeated=True, metavar="EPISODE…")] = (),
    *,
    episodes: File = None,
    stores: Annotated[Place | None, Option(metavar="FOLDER")] = None,
    output: LocalOutput = None,
    delete: bool = False,
    runs: RunsFolder = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> Forgotten:
    """Find every store and model that has given episodes, and write the stores again without them.

    For deletion requests. Episodes of their sub-agents go with them. New stores are written below -o under
    their old names, and their history counts the removed episodes without naming them. The catalog of the
    folder of stores keeps hashes of the ids, so that `trajkit rebuild` restores none of them. --delete
    removes the old folders once all new ones exist. Training files, published datasets and models are not
    changed: the models that learned from the episodes are named.

    Args:
        episode_ids: Ids of episodes.
        episodes: A file with one id per line.
        stores: The folder that is searched. Default: the folder of stores of trajkit.toml.
        output: The folder of the new stores. Needed unless nothing is written.
        delete: Delete the old stores, and pairs made from the episodes.
        runs: The folder where jobs are kept.
        dry_run: Only find them.
        yes: Do not ask before deleting.

    Raises:
        RequestError: No id is given, or no store and no model has one of them.
        StoreError: A store cannot be read, or a new one exists already.

    Example:
        trajkit forget --episodes ids.txt --dry-run
        trajkit forget --episodes ids.txt -o stores-new --delete
    """
    from trajkit._core.settings import project
    from trajkit.curation.forget import forget as write_without
    from trajkit.curation.forget import hash_of, holders
    from trajkit.store.catalog import Catalog

    wanted = {*many(episode_ids), *_listed(path_or_none(episodes))}
    if not wanted:
        raise RequestError("no episode is named", hint="EPISODE…, or --episodes FILE with one id per line")
    folder = Path(stores or project().stores)
    hashes = set(map(hash_of, wanted))
    if stores is not None and not folder.is_dir():
        raise RequestError(f"there is no folder {folder}", hint="--stores FOLDER is searched for stores")
    held = tuple(holders(folder, hashes)) if folder.is_dir() else ()
    models, unknown = _models(wanted, Path(runs))
    if not held and not models:
        others = f" or the other {count(len(wanted) - 1)}" if len(wanted) > 1 else ""
        raise RequestError(
            f"no store in {folder} and no model has {min(wanted)}{others}",
            hint="--stores FOLDER names another folder",
        )
    found = Forgotten(held, models, unknown, {})
    if dry_run:
        talk("dry run: nothing was written")
        return found
    rebuilt = [each for each in held if each.n_others and not each.is_pairs]
    goal = path_or_none(output)
    if goal is None and rebuilt:
        raise RequestError(
            f"no folder is named for {plural(len(rebuilt), 'store')} without them", hint="-o FOLDER"
        )
    goals = {each.path: goal / each.path.relative_to(folder) for each in rebuilt} if goal else {}
    if delete:
        for text in str(Forgotten(held, models, unknown, goals)).splitlines():
            console.preview(text)
        confirm(
            f"Delete {plural(len(held), 'folder')}?",
            yes=yes,
            verb="deletes them",
            refused="nothing was changed",
            unasked=f"this deletes {plural(len(held), 'folder')}, and there is no terminal to ask on",
        )
    for path, new in goals.items():
        make_parent(new)
        write_without(path, hashes, new)
    Catalog(folder).forget(hashes)
    gone = tuple(each.path for each in held) if delete else ()
    for path in gone:
        shutil.rmtree(path)
    return Forgotten(held, models, unknown, goals, gone)


def _listed(path: Path | None) -> set[str]:
    if path is None:
        return set()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    return {text for each in lines if (text := each.strip())}


def _models(wanted: set[str], runs: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models that used one of the episodes, and those for which this is unknown."""
    from trajkit.commands.comparison.contenders import lineage_in
    from trajkit.registry.lineage import Unknown, uses_of

    models, unknown = [], []
    for model in lineage_in(runs).models:
        for learned in (model.train, model.validation):
            if learned is None:
                continue
            uses = uses_of(learned)
            if isinstance(uses, Unknown):
                unknown.append(f"{model.name}: {uses.reason}")
            elif any(use.episode_id in wanted for use in uses) and model.name not in models:
                models.append(model.name)
    return tuple(models), tuple(unknown)
