"""What is known of stores before they are published: statistics, leaks, replays, and what a scan found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajkit._core.settings import reserved
from trajkit.curation.leak import leak
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.redact import scan
from trajkit.curation.redact_report import RedactReport
from trajkit.curation.stats import stats
from trajkit.curation.stats_model import Stats
from trajkit.publishing.sources import training_split
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text
from trajkit.store.reader import Store


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
