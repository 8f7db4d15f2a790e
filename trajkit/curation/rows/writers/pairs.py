"""Write a training file from preference pairs: rows of preferences, or of good and bad answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit.curation.pair_file import Pair, Turn
from trajkit.curation.rows.calls import Calls
from trajkit.curation.rows.conversion import Conversion, facts, warnings_of
from trajkit.curation.rows.length import Lengths, lengths_of
from trajkit.curation.rows.merge import says_something
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.provenance import METADATA_KEY
from trajkit.curation.rows.request import Options, checked
from trajkit.curation.rows.spool import Written, as_kind
from trajkit.curation.rows.tally import Step, Tally, counts_of, nothing, refuse_what_is_wrong
from trajkit.curation.rows.writers.lines import changing
from trajkit.errors import RequestError
from trajkit.formats import format_named
from trajkit.formats.base import (
    Format,
    Judged,
    JudgedFormat,
    Loss,
    LossKind,
    Preference,
    PreferenceFormat,
    Row,
    json_line,
    one_answer,
)
from trajkit.schema import Message, ThoughtBlock, ToolCallBlock

_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "side": pa.string(),
    "pair_id": pa.string(),
    "chosen_episode_id": pa.string(),
    "chosen_step_index": pa.int64(),
    "rejected_episode_id": pa.string(),
    "rejected_step_index": pa.int64(),
    "reason": pa.string(),
}
PAIR_SCHEMA = pa.schema(_TYPES)
"""Columns of the provenance. `side` is null if a row has both."""

_ROWS_AT_ONCE = 1000
OTHER_PROMPT = "the two sides were given different prompts"
"""Reason for which a pair is in no row: an answer is better only after the same prompt."""


class _Taught(NamedTuple):
    """A row of a pair, or the reason why there is none."""

    side: str | None
    row: Row | None
    reason: str | None
    n_tokens: int | None = None


def convert_pairs(
    pairs: Iterable[Pair],
    goal: Path,
    *,
    to: str | Format,
    source: Path,
    digest: str,
    **options: Any,
) -> Conversion:
    """Write rows of preferences from pairs.

    If the sides of a pair have several turns, the first answers that differ are learned. A pair whose sides
    have different prompts is in no row, and is counted.

    Args:
        pairs: Such as `trajkit.curation.pair_file.Pairs`; iterated twice.
        goal: The file to write. It must not exist before.
        to: The format, or its name.
        source: Path of the pairs.
        digest: Digest of the pairs.
        **options: The fields of `trajkit.curation.rows.request.Options`.

    Raises:
        RequestError: The format does not take pairs, or an option does not fit it.
        DataError: The target would refuse a row, a row is too long, or something is lost and `strict`.
        NothingMatched: No pair gives a row.
        StoreError: `goal` exists or cannot be written.
        MissingExtra: The tokenizer's package is not installed.
    """
    form = format_named(to) if isinstance(to, str) else to
    if not isinstance(form, PreferenceFormat | JudgedFormat):
        raise RequestError(
            f"{form.name} is made of a store, and {source} is pairs",
            hint="--to openai-dpo, trl-preference or trl-kto take pairs",
        )
    asked = checked(form, options)
    if asked.good is not None:
        raise RequestError("pairs already have a better side", hint="leave --good out")
    place = Place(goal, asked.kind_of(goal), is_folder=False)
    tally = Tally()
    lengths = lengths_of(asked, is_text=False, tally=tally)
    with place.open() as work:
        writer = _Writer(form, asked, lengths, tally)
        written = writer.write(pairs, work)
        refuse_what_is_wrong(tally, form, asked)
        if not written.n_rows:
            error = nothing(source, tally.left, noun="pair")
            if OTHER_PROMPT in tally.left:
                error.hint = f"{error.hint}; `trajkit pairs --same-prompt` finds pairs that agree in it"
            raise error
        rows, written = as_kind(place.kind, work / "lines", written, work, form.columns)
        made = Conversion(
            path=goal,
            data=goal,
            provenance=place.provenance,
            format=form.name,
            n_rows=written.n_rows,
            n_bytes=written.n_bytes,
            sha256=written.sha256,
            store=source,
            store_digest=digest,
            n_episodes=len(writer.episodes),
            n_steps=writer.n_sides,
            n_learned=written.n_rows,
            **counts_of(tally),
            n_tokens=writer.n_tokens,
            is_exact=lengths is not None and lengths.is_exact,
            warnings=tuple(warnings_of(form, written.n_rows, 0)),
        )
        _finish(work / "steps", work / "provenance", made, asked)
        place.settle(rows, work / "provenance", {})
    return made


class _Writer:
    """Writes the rows of pairs, and counts them."""

    def __init__(
        self, form: PreferenceFormat | JudgedFormat, asked: Options, lengths: Lengths | None, tally: Tally
    ) -> None:
        self._form = form
        self._calls = Calls(form.target, asked.tools)
        self._change = changing(asked.thoughts, tally)
        self._look = changing(asked.thoughts, Tally())  # `_judge` reads all pairs first, and must not count
        self._lengths = lengths
        self._tally = tally
        self._verdicts: dict[_Key, set[bool]] = {}
        self._said: set[_Key] = set()
        self.episodes: set[str] = set()
        self.n_sides = 0
        self.n_tokens: int | None = None

    def write(self, pairs: Iterable[Pair], work: Path) -> Written:
        digest = hashlib.sha256()
        n_rows = n_bytes = n_longest = 0
        waiting: list[dict[str, Any]] = []
        if isinstance(self._form, JudgedFormat):
            self._judge(pairs)
        with (work / "lines").open("wb") as file, pq.ParquetWriter(work / "steps", PAIR_SCHEMA) as provenance:
            for pair in pairs:
                parted = part(pair, self._change)
                self.episodes.update((pair.chosen_episode_id, pair.rejected_episode_id))
                for taught in self._taught(pair, parted):
                    self.n_sides += 1
                    number = None
                    if taught.row is not None and taught.reason is None:
                        data = (json_line(taught.row.value) + "\n").encode()
                        file.write(data)
                        digest.update(data)
                        number, n_rows = n_rows, n_rows + 1
                        n_bytes += len(data)
                        n_longest = max(n_longest, len(data))
                        if taught.n_tokens is not None:
                            self.n_tokens = (self.n_tokens or 0) + taught.n_tokens
                    else:
                        self._tally.left[taught.reason or ""] += 1
                    waiting.append(_origin(pair, parted, taught, number))
                if len(waiting) >= _ROWS_AT_ONCE:
                    provenance.write_table(pa.Table.from_pylist(waiting, schema=PAIR_SCHEMA))
                    waiting = []
            provenance.write_table(pa.Table.from_pylist(waiting, schema=PAIR_SCHEMA))
        return Written(n_rows, n_bytes, digest.hexdigest(), n_longest)

    def _judge(self, pairs: Iterable[Pair]) -> None:
        """Collect the verdicts on each answer, which may be good in one pair and bad in another."""
        for pair in pairs:
            parted = part(pair, self._look)
            for _, key, judged in _keys(pair, parted):
                self._verdicts.setdefault(key, set()).add(judged.is_good)

    def _taught(self, pair: Pair, parted: Parted) -> Iterator[_Taught]:
        """Yield the rows of a pair: one, or one for each side."""
        if isinstance(self._form, PreferenceFormat):
            yield self._preference(self._form, pair, parted)
            return
        if parted.sides is None:
            yield from (_Taught(side, None, parted.reason) for side in ("chosen", "rejected"))
            return
        for side, key, judged in _keys(pair, parted):
            if len(self._verdicts[key]) > 1:
                yield _Taught(side, None, "good in one pair and bad in another")
            elif key in self._said:
                yield _Taught(side, None, "in a row already")
            else:
                self._said.add(key)
                yield self._judged(self._form, Step(key.episode_id, key.step_index), side, judged)

    def _preference(self, form: PreferenceFormat, pair: Pair, parted: Parted) -> _Taught:
        if parted.preference is None:
            return _Taught(None, None, parted.reason)
        preference = self._completed(parted.preference)
        step = Step(pair.chosen_episode_id, parted.chosen_step)
        prompt, reason, n_tokens = self._fit(
            preference.prompt, (preference.chosen, preference.rejected), preference.tools, step
        )
        if prompt is None:
            return _Taught(None, None, reason)
        taught = self._checked(None, step, form.row(preference._replace(prompt=prompt)), n_tokens)
        if taught.row is not None:
            self._tally.lose(step, [Loss(LossKind.LATER_TURN, "later")] * parted.n_later)
        return taught

    def _completed(self, given: Preference) -> Preference:
        """Return the preference with call ids and tool declarations."""
        chosen = self._calls.with_ids((*given.prompt, given.chosen))
        rejected = self._calls.with_ids((*given.prompt, given.rejected))
        tools = self._calls.with_tools(given.tools, (*chosen, rejected[-1]))
        return Preference(chosen[:-1], chosen[-1], rejected[-1], tools)

    def _judged(self, form: JudgedFormat, step: Step, side: str, judged: Judged) -> _Taught:
        messages = self._calls.with_ids((*judged.prompt, judged.answer))
        tools = self._calls.with_tools(judged.tools, messages)
        judged = judged._replace(prompt=messages[:-1], answer=messages[-1], tools=tools)
        prompt, reason, n_tokens = self._fit(judged.prompt, (judged.answer,), judged.tools, step)
        if prompt is None:
            return _Taught(side, None, reason)
        return self._checked(side, step, form.row(judged._replace(prompt=prompt)), n_tokens)

    def _checked(self, side: str | None, step: Step, row: Row, n_tokens: int | None) -> _Taught:
        row = self._calls.checked(row)
        if row.problems:
            return _Taught(side, None, self._tally.refuse(step, row.problems))
        self._tally.lose(step, row.losses)
        return _Taught(side, row, None, n_tokens)

    def _fit(
        self, prompt: tuple[Message, ...], answers: tuple[Message, ...], tools: Any, step: Step
    ) -> tuple[tuple[Message, ...] | None, str | None, int | None]:
        """Return as much of the prompt as fits with each of the answers."""
        n_tokens = None
        if self._lengths is None:
            return prompt, None, None
        for answer in answers:
            fitted = self._lengths.fit(one_answer(prompt, answer, tools=tools), step)
            if fitted.example is None:
                return None, fitted.reason, None
            prompt = fitted.example.messages[:-1]
            n_tokens = (n_tokens or 0) + fitted.n_tokens
        return prompt, None, n_tokens


class _Key(NamedTuple):
    """An answer that may be a row of its own. A demonstration has the step of the worse answer."""

    episode_id: str
    step_index: int
    answer: str


def _keys(pair: Pair, parted: Parted) -> Iterator[tuple[str, _Key, Judged]]:
    """Yield both sides of a pair; none if the pair is not learned."""
    if parted.sides is None:
        return
    better, worse = parted.sides
    yield "chosen", _key(pair.chosen_episode_id, parted.chosen_step, better), better
    yield "rejected", _key(pair.rejected_episode_id, parted.rejected_step, worse), worse


def _key(episode_id: str, step_index: int, judged: Judged) -> _Key:
    return _Key(episode_id, step_index, hashlib.sha256(judged.answer.model_dump_json().encode()).hexdigest())


def _origin(pair: Pair, parted: Parted, taught: _Taught, number: int | None) -> dict[str, Any]:
    return {
        "row": number,
        "side": taught.side,
        "pair_id": pair.pair_id,
        "chosen_episode_id": pair.chosen_episode_id,
        "chosen_step_index": parted.chosen_step,
        "rejected_episode_id": pair.rejected_episode_id,
        "rejected_step_index": parted.rejected_step,
        "reason": taught.reason,
    }


def _finish(spooled: Path, goal: Path, made: Conversion, asked: Options) -> None:
    """Write the provenance with counts and options in its metadata."""
    schema = PAIR_SCHEMA.with_metadata({METADATA_KEY: json.dumps(facts(made, asked)).encode()})
    with pq.ParquetFile(spooled) as file, pq.ParquetWriter(goal, schema, compression="zstd") as writer:
        for batch in file.iter_batches():
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


class Parted(NamedTuple):
    """The first different answers of a pair."""

    preference: Preference | None
    """The preference to learn; None if there is none."""
    reason: str | None
    """Why there is none."""
    chosen_step: int
    """Step of the better answer."""
    rejected_step: int
    """Step of the worse answer."""
    sides: tuple[Judged, Judged] | None = None
    """The better and the worse answer, each with its own prompt; None if one of them is unknown."""
    n_later: int = 0
    """Number of later turns, which a row cannot contain."""


def part(pair: Pair, change: Callable[[Message], Message]) -> Parted:
    """Find the first different answers of a pair, after applying `change` to each message."""
    sides = (_turns(pair.prompt, pair.chosen, change), _turns(pair.prompt, pair.rejected, change))
    for number, (better, worse) in enumerate(zip(*sides, strict=False)):
        place = (better.step_index, worse.step_index)
        if better.prompt is None or worse.prompt is None:
            return Parted(None, "prompt unknown", *place)
        if better.answer is None or worse.answer is None:
            return Parted(None, "no answer", *place)
        is_same_prompt = better.prompt == worse.prompt
        if is_same_prompt and _sense(better.answer) == _sense(worse.answer):
            continue
        if not says_something(better.answer) or not says_something(worse.answer):
            return Parted(None, "empty answer", *place)
        if better.weight <= 0 or worse.weight <= 0:
            return Parted(None, "the first answers that differ are not both learned", *place)
        tools = tuple(pair.tools or ())
        judged = (
            Judged(better.prompt, better.answer, True, tools),
            Judged(worse.prompt, worse.answer, False, tools),
        )
        if not is_same_prompt:
            return Parted(None, OTHER_PROMPT, *place, judged)
        n_later = len(pair.chosen) + len(pair.rejected) - 2 * (number + 1)
        preference = Preference(better.prompt, better.answer, worse.answer, tools)
        return Parted(preference, None, *place, judged, n_later)
    return Parted(None, "one side only goes on where the other ends", *place)


class _Turn(NamedTuple):
    prompt: tuple[Message, ...] | None
    answer: Message | None
    step_index: int
    weight: float


def _turns(
    prompt: tuple[Message, ...], turns: Iterable[Turn], change: Callable[[Message], Message]
) -> Iterator[_Turn]:
    """Yield the turns of a side with their prompts."""
    before = tuple(map(change, prompt))
    for turn in turns:
        answer = None if turn.completion is None else change(turn.completion)
        if turn.messages is None:
            yield _Turn(None, answer, turn.step_index, turn.loss_weight)
            before = ()
            continue
        full = (*before[: turn.n_prompt_kept], *map(change, turn.messages))
        yield _Turn(full, answer, turn.step_index, turn.loss_weight)
        before = full if answer is None else (*full, answer)


def _sense(answer: Message) -> list[Any]:
    """Return an answer without thoughts and ids of calls."""
    return [
        block.model_copy(update={"id": ""}) if isinstance(block, ToolCallBlock) else block
        for block in answer.content
        if not isinstance(block, ThoughtBlock)
    ]
