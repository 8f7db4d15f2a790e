"""Which stores are published, as which splits, and what is known of them: numbers, leaks, replays, a scan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trajkit._core.outside import name_from_outside
from trajkit._core.settings import reserved
from trajkit.curation.leak import leak
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.redact import scan
from trajkit.curation.redact_column import RedactReport
from trajkit.curation.stats import stats, stores_in
from trajkit.curation.stats_model import Stats
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text
from trajkit.store.dataset import Dataset
from trajkit.store.reader import Store, verify

_SPLIT = re.compile(r"\w+(\.\w+)*")
_TRAIN, _TEST = "train", "test"


class Compared(Model):
    """Whether a split measures what another one learned."""

    train: Name
    """The split that is learned."""
    evaluation: Name | None
    """The one that measures; None where only reserved worlds were looked for."""
    leaks: bool
    """Whether they share what they must not."""
    lines: tuple[Text, ...]
    """What they share, in words."""


class Replayed(Model):
    """What playing a split again came to, as its lineage has it."""

    split: Name
    """Which."""
    n_episodes: Count
    """Its episodes then."""
    n_verified: Count
    """Those of which every value was the environment's."""
    n_different: Count
    """Those of which one was not."""


class Scanned(Model):
    """What a search for secrets and personal data found in a split."""

    split: Name
    """Which."""
    report: RedactReport
    """By kind and place."""


class Facts(Model):
    """What is known of the stores of a repository."""

    stats: Stats
    """Of all splits together."""
    compared: tuple[Compared, ...]
    """The training split with each other one; empty where there is nothing to compare."""
    replayed: tuple[Replayed, ...]
    """By split, where one was played again."""
    redacted: tuple[JsonObject, ...]
    """What was redacted before, as the lineage of the splits tells it."""
    scanned: tuple[Scanned, ...]
    """By split."""

    @property
    def n_findings(self) -> int:
        """Secrets and personal data that stand in the stores now."""
        return sum(each.report.n_found for each in self.scanned)


def facts_of(splits: Mapping[str, Store], *, patterns: Mapping[str, str] | None = None) -> Facts:
    """Find out what is known of stores.

    Args:
        splits: The stores by split.
        patterns: More that must not be published: names to regular expressions.
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
    learned = training_split(splits)
    others: list[str | None] = [name for name in splits if name != learned]
    if not others and reserved():
        others = [None]
    found = []
    for other in others:
        report = leak(splits[learned].path, None if other is None else splits[other].path)
        found.append(
            Compared(
                train=learned, evaluation=other, leaks=report.leaks, lines=tuple(_without_examples(report))
            )
        )
    return found


def _without_examples(report: LeakReport) -> list[str]:
    """The lines of a report without texts and ids, which are in the data for whoever wants them."""
    bare = report.model_copy(
        update={"findings": tuple(each.model_copy(update={"examples": ()}) for each in report.findings)}
    )
    return list(bare.lines())


def _replayed(split: str, store: Store) -> list[Replayed]:
    for entry in reversed(store.manifest.lineage):
        result: Any = entry.arguments.get("result")
        if entry.verb == "replay" and isinstance(result, dict):
            names = ("n_episodes", "n_verified", "n_different")
            return [Replayed(split=split, **{name: result.get(name, 0) for name in names})]
    return []


def _redacted(splits: Mapping[str, Store]) -> list[JsonObject]:
    return [
        {"split": split, **entry.arguments}
        for split, store in splits.items()
        for entry in store.manifest.lineage
        if entry.verb == "redact"
    ]


def _published_only(report: RedactReport) -> RedactReport:
    """Without paths in the manifest: of those only the last name is published."""
    found = tuple(
        each for each in report.found if not (each.kind == "home-path" and each.place.startswith("manifest."))
    )
    return report.model_copy(update={"found": found})


def splits_of(paths: Iterable[str | Path]) -> dict[str, Store]:
    """The stores by split, checked byte for byte.

    A store is the side of a split that its manifest says, else what its folder is called where there are
    several, else `train`; `test` where all its episodes were played for evaluation.

    Args:
        paths: Stores, or folders of stores as `trajkit split` leaves them.

    Raises:
        StoreError: One of them is no store, is damaged, or is of a newer version.
        RequestError: Two have the same name, or a name that no split may have.
        NothingMatched: One has no episode.
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


def training_split(splits: Iterable[str]) -> str:
    """The split that is learned: the one that says so, else the first."""
    names = list(splits)
    return _TRAIN if _TRAIN in names else names[0]


def _name(store: Store, *, is_only: bool) -> str:
    if store.manifest.split is not None:
        return store.manifest.split
    if not is_only:
        return store.path.name.replace("-", "_")
    n_eval = Dataset(store).where("purpose = 'eval'").n_episodes
    return _TEST if n_eval == store.manifest.counts.n_episodes else _TRAIN
