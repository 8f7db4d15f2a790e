"""Choose the splits to publish, and collect their facts: numbers, leaks, replays, findings of a scan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trajkit._core.outside import name_from_outside
from trajkit._core.settings import reserved
from trajkit.curation.leaks.leak import leak
from trajkit.curation.redact import scan
from trajkit.curation.redaction.column import RedactReport
from trajkit.curation.statistics.model import Stats
from trajkit.curation.statistics.stats import stats, stores_in
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text
from trajkit.store.dataset import Dataset
from trajkit.store.reader import Store, verify

_SPLIT = re.compile(r"\w+(\.\w+)*")
_TRAIN, _TEST = "train", "test"


class Compared(Model):
    """The comparison of a training split with an evaluation split."""

    train: Name
    """Name of the training split."""
    evaluation: Name | None
    """Name of the evaluation split; None if only reserved worlds were checked."""
    leaks: bool
    """Whether there is a leak."""
    lines: tuple[Text, ...]
    """The overlaps, in words."""


class Replayed(Model):
    """The result of a replay, as the split's lineage records it."""

    split: Name
    """Name of the split."""
    n_episodes: Count
    """Episodes that it had then."""
    n_verified: Count
    """Episodes whose values all matched the environment's."""
    n_different: Count
    """Episodes with a value that did not match."""


class Scanned(Model):
    """The secrets and personal data that a search found in a split."""

    split: Name
    """Name of the split."""
    report: RedactReport
    """Findings by kind and place."""


class Facts(Model):
    """The known facts about the stores of a repository."""

    stats: Stats
    """Statistics of all splits together."""
    compared: tuple[Compared, ...]
    """The training split compared with each other split; empty if there is nothing to compare."""
    replayed: tuple[Replayed, ...]
    """Replay results of the splits that were replayed."""
    redacted: tuple[JsonObject, ...]
    """Earlier redactions, from the lineage of the splits."""
    scanned: tuple[Scanned, ...]
    """Findings of the search in each split."""

    @property
    def n_findings(self) -> int:
        """Number of secrets and personal data that are in the stores now."""
        return sum(each.report.n_found for each in self.scanned)


def facts_of(splits: Mapping[str, Store], *, patterns: Mapping[str, str] | None = None) -> Facts:
    """Collect the known facts about stores.

    Args:
        splits: The stores by split.
        patterns: Further patterns to search for: names to regular expressions.
    """
    return Facts(
        stats=stats(*(store.path for store in splits.values())),
        compared=tuple(_compared(splits)),
        replayed=tuple(each for split, store in splits.items() for each in _replayed(split, store)),
        redacted=tuple(_redacted(splits)),
        scanned=tuple(
            Scanned(split=split, report=_published_only(scan(store.path, patterns=patterns)))
            for split, store in splits.items()
        ),
    )


def _compared(splits: Mapping[str, Store]) -> list[Compared]:
    learned = _TRAIN if _TRAIN in splits else next(iter(splits))
    others: list[str | None] = [name for name in splits if name != learned]
    if not others and reserved():
        others = [None]
    found = []
    for other in others:
        report = leak(splits[learned].path, None if other is None else splits[other].path)
        bare = tuple(each.model_copy(update={"examples": ()}) for each in report.findings)  # no texts, no ids
        lines = tuple(report.model_copy(update={"findings": bare}).lines())
        found.append(Compared(train=learned, evaluation=other, leaks=report.leaks, lines=lines))
    return found


def _replayed(split: str, store: Store) -> list[Replayed]:
    for entry in reversed(store.manifest.lineage):
        result: Any = entry.result
        if entry.verb == "replay":
            names = ("n_episodes", "n_verified", "n_different")
            return [Replayed(split=split, **{name: result.get(name, 0) for name in names})]
    return []


def _redacted(splits: Mapping[str, Store]) -> list[JsonObject]:
    return [
        {"split": split, **entry.options, **entry.result}
        for split, store in splits.items()
        for entry in store.manifest.lineage
        if entry.verb == "redact"
    ]


def _published_only(report: RedactReport) -> RedactReport:
    """Leave out paths in the manifest, of which only the last part is published."""
    found = tuple(
        each for each in report.found if not (each.kind == "home-path" and each.place.startswith("manifest."))
    )
    return report.model_copy(update={"found": found})


def splits_of(paths: Iterable[str | Path]) -> dict[str, Store]:
    """Open the stores and name their splits. Every file is verified.

    A split has the name in the store's manifest, otherwise the name of its folder. A single store without a
    recorded name is `test` if all its episodes were played for evaluation, otherwise `train`.

    Args:
        paths: Stores, or folders of stores as `trajkit split` writes them.

    Raises:
        StoreError: A path is not a store, is damaged, or is of a newer version.
        RequestError: Two stores have the same split name, or a name is invalid for a split.
        NothingMatched: A store has no episode.
    """
    stores = [store for path in paths for store in stores_in(path)]
    if not stores:
        raise RequestError("no store is named")
    found: dict[str, Store] = {}
    for store in stores:
        if not store.manifest.counts.n_episodes:
            raise NothingMatched(f"{store.path} has no episodes, so there is nothing to publish")
        verify(store)
        name = _name(store, is_only=len(stores) == 1)
        name_from_outside(name, what=f"the split of {store.path}", error=RequestError)
        if not _SPLIT.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot be the name of a split on the Hub",
                hint="letters, digits and _ only: rename the folder",
            )
        if name in found:
            raise RequestError(
                f"{found[name].path} and {store.path} are both the split {name!r}",
                hint="give their folders different names, or merge them: `trajkit merge`",
            )
        found[name] = store
    return found


def _name(store: Store, *, is_only: bool) -> str:
    if store.manifest.split is not None:
        return store.manifest.split
    if not is_only:
        return store.path.name.replace("-", "_")
    n_eval = Dataset(store).where("purpose = 'eval'").n_episodes
    return _TEST if n_eval == store.manifest.counts.n_episodes else _TRAIN
