"""Decide which documents go into the store, under which ids, and record why the others do not."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trajkit
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.base import Problem
from trajkit.formats.reading.atif_rows import Rows
from trajkit.formats.reading.document import BadDocument, Reading, renamed, shown
from trajkit.formats.reading.sanity import NO_STEPS, problems
from trajkit.schema import (
    Episode,
    Left,
    LineageEntry,
    Manifest,
    Message,
    Model,
    Outcome,
    TextBlock,
    ToolCallBlock,
)
from trajkit.schema.base import JsonObject
from trajkit.schema.success import finite_number, parse_success
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.known import allows_system_anywhere
from trajkit.sources.wish import Wish
from trajkit.store.arrow import Row

_MOST_SHOWN = 3
_UNNAMED = "unnamed"
_ID_LENGTH = 32
_OPTIONS = {"metrics": "metric", "tags": "tag"}
"""The options of `import` whose fields have other names."""


class Imported(Model):
    """The result of an import: the store, and what was left out."""

    path: str
    """The path or URL that was read."""
    format: str
    """Its format."""
    n_documents: int
    """Documents that were seen."""
    n_episodes: int
    """Episodes in the store."""
    n_steps: int
    """Their steps."""
    n_exact: int
    """Documents that trajkit wrote, which give exactly the original episodes."""
    n_text_calls: int = 0
    """Answers that call a tool in their text, as `<function=NAME>`; they stay text."""
    left: dict[str, int]
    """Documents that are not in the store, by reason."""
    missing: dict[str, int] = {}
    """Episodes in the store that lack some fact, by the fact."""
    unread: dict[str, int]
    """Files without documents, by suffix."""
    problems: tuple[str, ...]
    """The first few problems, with their places."""
    places: dict[str, str] = {}
    """The problem at each of these places, without the wrong value."""
    store: Path
    """The store that now exists."""
    digest: str
    """Its content."""


def _calls_in_text(answer: Message | None) -> bool:
    return answer is not None and any(
        isinstance(block, TextBlock) and "<function=" in block.text for block in answer.content
    )


def _unknown(episodes: Sequence[Episode]) -> Iterator[str]:
    """Yield the facts that training needs and logged episodes lack."""
    if not any(one.metrics or one.feedback or any(step.metrics for step in one.steps) for one in episodes):
        yield "no score"
    steps = [step for one in episodes for step in one.steps]
    if any(step.tools is None and _calls(step.completion) for step in steps):
        yield "tools that were called, not those that were offered"


def _calls(answer: Message | None) -> bool:
    return answer is not None and any(isinstance(block, ToolCallBlock) for block in answer.content)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass
class Counts:
    """The counts of an import, or of one shard of it."""

    left: Counter[str] = field(default_factory=Counter)
    """Documents that are left out, by reason."""
    missing: Counter[str] = field(default_factory=Counter)
    """Episodes that lack some fact, by the fact."""
    unread: Counter[str] = field(default_factory=Counter)
    """Files without documents, by suffix."""
    shown: list[str] = field(default_factory=list)
    """The first few problems, with their places."""
    places: dict[str, str] = field(default_factory=dict)
    """The problem at each place."""
    columns: set[str] = field(default_factory=set)
    """Fields of the documents besides their messages."""
    found: set[str] = field(default_factory=set)
    """Requested places that are in a document."""
    measured: set[str] = field(default_factory=set)
    """Metrics that a document has."""
    n_documents: int = 0
    n_bad: int = 0
    n_exact: int = 0
    n_episodes: int = 0
    n_steps: int = 0
    n_text_calls: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another shard."""
        for mine in fields(self):
            before, more = getattr(self, mine.name), getattr(other, mine.name)
            if isinstance(before, int | list):
                setattr(self, mine.name, before + more)
            else:
                before.update(more)
        del self.shown[_MOST_SHOWN:]


class Intake:
    """Checks the documents, gives them ids, and counts those left out."""

    def __init__(self, name: str, wish: Wish) -> None:
        self.name = name
        self._wish = wish
        self._success = None if wish.success is None else parse_success(wish.success)
        self._allows_system = allows_system_anywhere(name)
        self._ids: set[str] = set()
        self.counts = Counts()

    @property
    def is_kept(self) -> bool:
        """Whether there are episodes, and no document that may not be left out."""
        return self.counts.n_episodes > 0 and (self._wish.skip_bad or not self.counts.n_bad)

    def take(self, found: Found | Unread) -> Sequence[Episode | dict[str, list[Row]]]:
        """Return the episodes of a document that go into the store, or the rows of its only episode."""
        if isinstance(found, Unread):
            self.counts.unread[found.suffix or "none"] += 1
            return ()
        self.counts.n_documents += 1
        if found.aside is not None:
            self.counts.left[found.aside] += 1
            return ()
        if found.reading is None:
            assert found.problem is not None
            self._refuse(found.place, found.problem)
            return ()
        if isinstance(found.reading, Rows):
            return self._take_rows(found.reading, found)
        problem = self._problem(found.reading)
        if problem is not None:
            self._refuse(found.place, problem)
            return ()
        episodes = found.reading.episodes
        if (reason := self._out_of_time(episodes)) is not None:
            self.counts.left[reason] += 1
            return ()
        name = self._free_id(episodes[0].episode_id, found, is_named=found.reading.is_named)
        if name is None:
            return ()
        if name != episodes[0].episode_id:
            episodes = renamed(episodes, name)
        self._ids.update(episode.episode_id for episode in episodes)
        try:
            wished = [self._as_wished(one, found, is_exact=found.reading.is_exact) for one in episodes]
        except BadDocument as error:
            self._refuse(found.place, error.problem)
            return ()
        self.counts.n_exact += found.reading.is_exact
        self.counts.n_text_calls += sum(
            _calls_in_text(step.completion) for one in episodes for step in one.steps
        )
        if not self._counts(len(episodes), sum(episode.n_steps for episode in episodes)):
            return ()
        if found.reading.is_log:
            self.counts.missing.update({*found.missing, *_unknown(wished)})
        return wished

    def _out_of_time(self, episodes: Sequence[Episode]) -> str | None:
        """Return why `since` or `until` leaves a document out; one without a time is never left out."""
        since, until = self._wish.since, self._wish.until
        starts = [one.started_at for one in episodes if one.started_at is not None]
        ends = [one.ended_at or one.started_at for one in episodes if one.started_at is not None]
        if since is not None and ends and max(end for end in ends if end is not None) < since:
            return "before --since"
        return "not before --until" if until is not None and starts and min(starts) >= until else None

    def _take_rows(self, rows: Rows, found: Found) -> Sequence[dict[str, list[Row]]]:
        """Return the rows of a usual document, which is valid and has neither metrics nor sub-agents."""
        name = self._free_id(rows.episode["episode_id"], found, is_named=rows.is_named)
        if name is None:
            return ()
        rows.episode["origin"] = {"file": found.place, **rows.episode["origin"]}
        if self._wish.purpose is not None:
            rows.episode["purpose"] = self._wish.purpose.value
        try:
            episode, steps = rows.spelled(name)
        except BadDocument as error:
            self._refuse(found.place, error.problem)
            return ()
        return [{"episodes": [episode], "steps": steps}] if self._counts(1, len(steps)) else ()

    def _counts(self, n_episodes: int, n_steps: int) -> bool:
        """Return whether a document goes into the store, and count it then."""
        if self.counts.n_bad and not self._wish.skip_bad:
            return False  # there will be no store: only problems are still counted
        self.counts.n_episodes += n_episodes
        self.counts.n_steps += n_steps
        return True

    def _problem(self, reading: Reading) -> Problem | None:
        if reading.is_exact:
            return None
        if reading.is_log:
            is_empty = not any(episode.steps for episode in reading.episodes)
            return Problem(NO_STEPS, "steps") if is_empty else None
        for episode in reading.episodes:
            for problem in problems(episode, allows_system_anywhere=self._allows_system):
                return problem
        return None

    def _refuse(self, place: str, problem: Problem) -> None:
        self.counts.n_bad += 1
        self.counts.left[f"cannot be read: {problem.kind}"] += 1
        if len(self.counts.shown) < _MOST_SHOWN:
            self.counts.shown.append(f"{place}: {problem}")
            where = "" if problem.where == "the document" else f" at {problem.where}"
            self.counts.places[place] = f"{problem.kind}{where}"

    def _free_id(self, wanted: str, found: Found, *, is_named: bool) -> str | None:
        """Return an unused id; None if the document's own id is taken."""
        if wanted == _UNNAMED:
            wanted = hashlib.sha256(found.key).hexdigest()[:_ID_LENGTH]
        if is_named and wanted in self._ids:
            self._refuse(
                found.place, Problem("an episode id that occurs twice", "the document", repr(wanted))
            )
            return None
        free, number = wanted, 1
        while free in self._ids:
            number += 1
            free = f"{wanted}-{number}"
        self._ids.add(free)
        return free

    def _as_wished(self, episode: Episode, found: Found, *, is_exact: bool) -> Episode:
        update: dict[str, Any] = {}
        if not is_exact:
            update["origin"] = {"file": found.place, **(episode.origin or {})}
        if self._wish.purpose is not None:
            update["purpose"] = self._wish.purpose
        metrics = {**episode.metrics, **self._metrics(episode)}
        if self._wish.metrics:
            update["metrics"] = metrics
        if tags := self._tags(episode):
            update["tags"] = {**episode.tags, **tags}
        if self._wish.task is not None and (task := self._at(episode, self._wish.task)) is not None:
            update["task"] = task if isinstance(task, str) else json.dumps(task)
        self.counts.measured.update(metrics)
        if self._success is not None:
            values = {name: float(value) for name, value in metrics.items() if value is not None}
            if self._success.metric in values:
                is_success = self._success.holds(values)
                update["outcome"] = Outcome.SUCCESS if is_success else Outcome.FAILURE
        return episode.model_copy(update=update) if update else episode

    def _metrics(self, episode: Episode) -> dict[str, float | bool]:
        """Return the requested metrics of a document."""
        found: dict[str, float | bool] = {}
        for name, place in self._wish.metrics.items():
            value = self._at(episode, place)
            number = finite_number(value) if isinstance(value, str) else value
            if value is None:
                continue
            if not isinstance(number, int | float):
                raise BadDocument("a metric that is not a number", place, shown(value))
            found[name] = number if isinstance(number, bool) else float(number)
        return found

    def _tags(self, episode: Episode) -> dict[str, str]:
        """Return the requested tags of a document."""
        found = {name: self._at(episode, place) for name, place in self._wish.tags.items()}
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in found.items()
            if value is not None
        }

    def _at(self, episode: Episode, place: str) -> Any:
        """Return the value at a place of a document, besides its messages."""
        value: Any = episode.origin or {}
        value = {"columns": value.get("row", value.get("line", {})), **value}
        self.counts.columns.update(f"columns.{name}" for name in _object(value["columns"]))
        for name in place.split("."):
            value = _object(value).get(name)
        if value is not None:
            self.counts.found.add(place)
        return value

    def _refuse_unfound(self) -> None:
        """Raise if a name that the user gave is in no document."""
        known = ", ".join(sorted(self.counts.columns)) or "only messages"
        for place in (*self._wish.metrics.values(), *self._wish.tags.values(), self._wish.task):
            if place is not None and place not in self.counts.found:
                raise RequestError(f"no document has {place!r}", hint=f"they have: {known}")
        measured = ", ".join(sorted(self.counts.measured)) or "nothing"
        if self._success is not None and self._success.metric not in self.counts.measured:
            raise RequestError(
                f"--success names the metric {self._success.metric!r}, which no document has",
                hint=f"measured: {measured}; or --metric NAME=PLACE",
            )

    def finish(self, path: str) -> None:
        """Raise if there is nothing to keep, or a document that may not be left out."""
        if self.counts.n_bad and not self._wish.skip_bad:
            n_bad, n_all = self.counts.n_bad, self.counts.n_documents
            more = n_bad - len(self.counts.shown)
            listed = "; ".join(self.counts.shown) + (f"; and {more:,} more" if more else "")
            noun = "document" if n_all == 1 else "documents"
            raise DataError(
                f"{n_bad:,} of {n_all:,} {noun} cannot be read as {self.name}: {listed}",
                hint="leave such documents out and count them with --skip-bad",
            )
        if not self.counts.n_episodes:
            reasons = "; ".join(f"{number:,} {reason}" for reason, number in sorted(self.counts.left.items()))
            raise NothingMatched(f"no episode in {path}", hint=reasons or f"no document is {self.name}")
        self._refuse_unfound()

    def entry(self, path: str, pulled: JsonObject | None = None) -> LineageEntry:
        """Return the import as the lineage records it.

        Args:
            path: The path or URL that was read.
            pulled: Options of the `pull` that brought it; None for an import.
        """
        n_left = sum(self.counts.left.values())
        wish = self._wish.model_dump(mode="json", exclude_defaults=True, exclude={"format"})
        return LineageEntry(
            verb="import" if pulled is None else "pull",
            arguments={
                **({"path": path} if pulled is None else pulled),
                "from": self.name,
                **{_OPTIONS.get(name, name): value for name, value in wish.items()},
            },
            n_episodes_in=self.counts.n_episodes + n_left,
            n_episodes_out=self.counts.n_episodes,
            n_steps_in=self.counts.n_steps,
            n_steps_out=self.counts.n_steps,
            left=tuple(
                Left(reason=reason, n_episodes=number) for reason, number in sorted(self.counts.left.items())
            ),
            done_at=datetime.now(UTC),
            trajkit_version=trajkit.__version__,
        )

    def imported(self, path: str, goal: Path, manifest: Manifest) -> Imported:
        """Return the result of the import."""
        return Imported(
            path=path,
            format=self.name,
            n_documents=self.counts.n_documents,
            n_episodes=self.counts.n_episodes,
            n_steps=self.counts.n_steps,
            n_exact=self.counts.n_exact,
            n_text_calls=self.counts.n_text_calls,
            left=dict(sorted(self.counts.left.items())),
            missing=dict(sorted(self.counts.missing.items())),
            unread=dict(sorted(self.counts.unread.items())),
            problems=tuple(self.counts.shown),
            places=self.counts.places,
            store=goal,
            digest=manifest.digest,
        )
