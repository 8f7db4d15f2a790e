"""Convert a journal to episodes one at a time, so that memory holds only the longest of them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.rollouts.recorder.calls.chat import ChatReader, Said
from trajkit.rollouts.recorder.calls.reading import Call, read_call
from trajkit.rollouts.recorder.calls.responses import ResponsesReader
from trajkit.rollouts.recorder.journal import JournalReader
from trajkit.rollouts.recorder.notes import Notes
from trajkit.rollouts.recorder.shared import Difference, Lane
from trajkit.schema import Episode, Message, Outcome, Transition, kept
from trajkit.schema.episode import MetricValue
from trajkit.schema.success import parse_success

NOT_ENDED = "the recording ended before the episode did"
_SUCCESS_METRICS = {"success", "progression"}
_DEFAULT_SUCCESS = ("success >= 1", "progression >= 1")
_MOST_LINKS = 1000


class Tally:
    """The counts of a journal."""

    def __init__(self) -> None:
        self.n_episodes = 0
        self.n_steps = 0
        self.n_failed = 0
        """Requests that the service did not answer."""
        self.n_in_background = 0
        """Answers that were to be fetched later."""
        self.n_masked = Counter[str]()
        """Steps that are kept as context only, by reason."""
        self.services: set[str] = set()
        """Scheme, host and port of the services that answered."""
        self.n_notes_lost = 0
        """Notes, such as rewards, on a call that was not recorded."""
        self.n_bytes_unread = 0
        """Bytes of the journal that are not a whole record."""
        self.n_open = 0
        """Open episodes that were left out because only finished ones were requested."""


def episodes(path: Path, tally: Tally, *, only_ended: bool = False) -> Iterator[Episode]:
    """Yield every episode of a journal, in the order begun.

    Args:
        path: The journal.
        tally: Gets the counts.
        only_ended: Leave out open episodes, for a journal that is still being written.

    Raises:
        StoreError: The file is not a journal, or cannot be read.
    """
    chains = _Chains()
    with JournalReader(path) as reader:
        offsets: dict[str, list[int]] = {}
        for offset, header in reader.places():
            offsets.setdefault(header["episode"], []).append(offset)
        if not only_ended:  # a partial record is not lost while its recorder is running
            tally.n_bytes_unread = reader.n_bytes_unread
        for episode_id, places in offsets.items():
            assembly = _Assembly(episode_id, chains, tally)
            for offset in places:
                assembly.take(*reader.record(offset))
            if only_ended and assembly.is_open:
                tally.n_open += 1
            elif not assembly.is_empty:
                yield assembly.episode()


def with_notes(episode: Episode, notes: Notes) -> Episode:
    """Return the episode of a written store with its later notes.

    Args:
        episode: The episode in the store.
        notes: The later notes; they count those on steps that do not exist.
    """
    steps = notes.on_steps(list(episode.steps))
    metrics = {**episode.metrics, **notes.metrics}
    outcome = episode.outcome
    if outcome != Outcome.ERROR and (notes.outcome or notes.metrics.keys() & _SUCCESS_METRICS):
        outcome = _outcome(notes.outcome, metrics, steps)
    facts = {name: getattr(episode, name) for name in Episode.model_fields}
    changed = {
        "steps": steps,
        "metrics": metrics,
        "outcome": outcome,
        "total_reward": _total(steps),
        "feedback": sorted((*episode.feedback, *notes.feedback), key=lambda one: one.feedback_id),
    }
    return Episode.model_validate({**facts, **changed})


class _Assembly:
    """Assembles one episode from its records in the order they were written."""

    def __init__(self, episode_id: str, chains: _Chains, tally: Tally) -> None:
        self._episode_id = episode_id
        self._chains = chains
        self._tally = tally
        self._begun: dict[str, Any] = {}
        self._ended: dict[str, Any] | None = None
        self._n_failed = 0
        self._lane = Lane()
        self._readers: dict[int, ChatReader | ResponsesReader] = {}
        self._names: dict[str, str] = {}
        self._calls: list[Call] = []
        self._notes = Notes(episode_id)

    @property
    def is_empty(self) -> bool:
        """Whether there are only unanswered requests outside any episode."""
        return not self._begun and not self._calls and not self._notes.is_any

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return bool(self._begun) and self._ended is None

    def take(self, header: dict[str, Any], bodies: list[bytes]) -> None:
        match header["kind"]:
            case "begin":
                self._begun = header
            case "end":
                self._ended = header
            case "note":
                self._notes.take(header)
            case "failed":
                self._n_failed += 1
                self._tally.n_failed += 1
            case "call":
                self._take_call(header, *bodies)

    def _take_call(self, header: dict[str, Any], middle: bytes, answered: bytes) -> None:
        difference = Difference(header["base"], header["same"][0], header["same"][1], middle)
        try:
            body = self._lane.body(difference)
        except KeyError:  # the journal of a faulty recorder: the rest can still be read
            body = b""
        self._lane.keep(header["number"], body, difference)
        reader = self._readers.pop(header["base"], None)
        is_chat = header["api"] == "chat"
        if reader is None or isinstance(reader, ChatReader) != is_chat:
            reader = ChatReader() if is_chat else ResponsesReader(self._names)
        self._readers[header["number"]] = reader
        self._tally.services.add(header["service"])
        call = read_call(header, body, answered, reader)
        if call.said.is_in_background:
            self._tally.n_in_background += 1
            return
        self._calls.append(call)

    def episode(self) -> Episode:
        calls = sorted(self._calls, key=lambda call: call.header["number"])
        steps = self._notes.on_steps(self._steps(calls))
        self._tally.n_notes_lost += self._notes.n_lost
        self._tally.n_episodes += 1
        self._tally.n_steps += len(steps)
        metrics = self._notes.metrics
        return Episode.model_validate(
            {
                **{name: self._begun.get(name) for name in ("env_id", "task", "seed", "initial_state_hash")},
                "episode_id": self._episode_id,
                "source": "recorder",
                "purpose": self._begun.get("purpose", "unknown"),
                "tags": self._begun.get("tags", {}),
                "started_at": steps[0].started_at if steps else None,
                "ended_at": max((_ended_at(call.header) for call in calls), default=None),
                "outcome": self._outcome(steps),
                "total_reward": _total(steps),
                "metrics": metrics,
                "origin": self._origin() or None,
                "steps": steps,
                "feedback": self._notes.feedback,
            }
        )

    def _steps(self, calls: list[Call]) -> list[Transition]:
        steps = []
        before: tuple[Message, ...] = ()
        answer: Message | None = None
        for index, call in enumerate(calls):
            prompt = self._chains.prompt(call.said)
            facts: dict[str, Any] = {"step_index": index}
            if prompt is None:
                reason = call.step.mask_reason or "prompt unknown"
                facts |= {"input": call.request, "loss_weight": 0.0, "mask_reason": reason}
            else:
                n = kept(before, answer, prompt)
                facts |= {"n_prompt_kept": n, "messages": prompt[n:]}
            step = call.step.model_copy(update=facts)
            if step.mask_reason is not None:
                self._tally.n_masked[step.mask_reason] += 1
            before, answer = prompt or (), None if prompt is None else step.completion
            steps.append(step)
        return steps

    def _outcome(self, steps: list[Transition]) -> Outcome:
        if self._error() is not None:
            return Outcome.ERROR
        return _outcome(self._notes.outcome, self._notes.metrics, steps)

    def _error(self) -> str | None:
        if not self._begun:
            return None  # a call outside any episode, which is complete
        if self._ended is None:
            return NOT_ENDED
        error: str | None = self._ended.get("error")
        return error

    def _origin(self) -> dict[str, Any]:
        facts = {
            "error": self._error(),
            "parent_episode_id": self._begun.get("parent"),
            "n_failed_requests": self._n_failed or None,
            "outside": any(call.header["id"] == self._episode_id for call in self._calls) or None,
        }
        return {name: value for name, value in facts.items() if value is not None}


def _outcome(said: str | None, metrics: Mapping[str, MetricValue], steps: Sequence[Transition]) -> Outcome:
    """Return the outcome of an episode: the user's, or else that of a metric."""
    if said is not None:
        return Outcome(said)
    is_truncated = bool(steps and steps[-1].truncated)
    values = {name: float(value) for name, value in metrics.items() if value is not None}
    for rule in map(parse_success, _DEFAULT_SUCCESS):
        if rule.metric in values:
            if rule.holds(values):
                return Outcome.SUCCESS
            return Outcome.TRUNCATED if is_truncated else Outcome.FAILURE
    return Outcome.TRUNCATED if is_truncated else Outcome.UNKNOWN


def _total(steps: Sequence[Transition]) -> float | None:
    """Return the sum of the rewards; None if a step has none."""
    rewards = [step.reward for step in steps if step.reward is not None]
    return sum(rewards) if steps and len(rewards) == len(steps) else None


def _ended_at(header: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(header["started_at"]) + timedelta(seconds=header["latency_s"])


class _Link(NamedTuple):
    before: _Link | None
    messages: tuple[Message, ...]
    """Messages that this call added, its answer last; instructions are not carried over."""


class _Chains:
    """The latest recorded responses by id, each with the one before it.

    A prompt may continue an earlier response of the responses API, whose start the service stores.
    """

    def __init__(self) -> None:
        self._links: OrderedDict[str, _Link] = OrderedDict()

    def prompt(self, said: Said) -> tuple[Message, ...] | None:
        """Return the whole prompt of a call; None when only the service knows a part of it."""
        before = None if said.previous_id is None else self._links.get(said.previous_id)
        if not said.is_prompt_known or (said.previous_id is not None and before is None):
            return None
        n = said.n_instructions
        if said.response_id is not None:
            added = said.prompt[n:] if said.completion is None else (*said.prompt[n:], said.completion)
            self._links[said.response_id] = _Link(before, added)
            while len(self._links) > _MOST_LINKS:
                self._links.popitem(last=False)
        return said.prompt[:n] + _messages(before) + said.prompt[n:]


def _messages(link: _Link | None) -> tuple[Message, ...]:
    links = []
    while link is not None:
        links.append(link.messages)
        link = link.before
    return tuple(message for messages in reversed(links) for message in messages)
