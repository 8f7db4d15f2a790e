"""Complete pairs with the prompts, turns, ids and scores of both sides."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from trajkit.curation.derive import Derivation
from trajkit.curation.keys import Key
from trajkit.curation.pair_file import Pair, Turn
from trajkit.curation.preferences.pairing import Picked
from trajkit.curation.replays.episode import Witness
from trajkit.curation.selection.groups import Score
from trajkit.schema import Block, Message, Role, TextBlock, ToolCallBlock, UnknownBlock
from trajkit.store.view import full_steps, spans

_PAIRS_AT_ONCE = 200
_CHOSEN, _REJECTED = 0, 1
_BLOCK: TypeAdapter[Block] = TypeAdapter(Block)

OWN_ANSWER = "coalesce(json_extract(extra, '$.replaced_answer'), completion)"
"""The model's own answer at a step, also if an export replaced it by the demonstration."""

# Read once for all pairs, in their order: each batch of pairs is then one slice of the result.
_TURNS = """
    SELECT d.number, d.side, f.step_index, CASE WHEN f.step_index = d.step_index THEN prompt END AS prompt,
        f.tools, f.n_prompt_kept, f.messages, {answer} AS completion, f.loss_weight, f.inference_id,
        coalesce(f.action_executed, nullif(CAST(f.action AS VARCHAR), 'null')) AS action, f.demonstration
    FROM ({steps}) f
    JOIN trajkit_side d ON f.episode_id = d.episode_id AND f.step_index {begins} d.step_index
"""
_ABOUT = """
    CREATE OR REPLACE TEMP TABLE trajkit_about AS
    SELECT e.episode_id, env_id, task, seed, initial_state_hash, key, {score}
    FROM episodes e JOIN (SELECT episode_id, key FROM {keys}) k ON k.episode_id = e.episode_id
    WHERE e.episode_id IN (SELECT episode_id FROM trajkit_side)
"""


class _About(NamedTuple):
    """Columns of an episode."""

    episode_id: str
    env_id: str | None
    task: str | None
    seed: int | None
    initial_state_hash: str | None
    key: str
    score: float | None


class _Half(NamedTuple):
    """One side of a pair."""

    prompt: tuple[Message, ...]
    tools: Any
    turns: tuple[Turn, ...]
    inference_id: str | None
    action: str | None
    demonstration: str | None


@dataclass
class PairRows:
    """The pairs in their order, read and counted some hundred at a time."""

    derivation: Derivation
    """The store."""
    pairs: Sequence[Picked]
    """Ids and steps of the pairs."""
    score: Score | None
    """The score that they were compared by."""
    key: Key
    """The key of the groups."""
    witness: Witness | None
    """The replays of their episodes; None without replays."""
    match: str
    """What the sides share."""
    level: str
    """`step` or `episode`."""
    n_verified: int = 0
    """Pairs of which a replay confirmed both episodes."""
    n_other_prompt: int = 0
    """Pairs whose rejected side has another prompt than the chosen one."""

    def counted(self) -> Self:
        """Read all pairs, to count them."""
        for _ in self:
            pass
        return self

    def __iter__(self) -> Iterator[Pair]:
        self.n_verified = self.n_other_prompt = 0
        self._gather()
        for begin in range(0, len(self.pairs), _PAIRS_AT_ONCE):
            picked = self.pairs[begin : begin + _PAIRS_AT_ONCE]
            about, halves = self._read(begin, begin + len(picked))
            for number, pair in enumerate(picked, begin):
                made = self._pair(pair, about, halves[number, _CHOSEN], halves[number, _REJECTED])
                self.n_verified += made.is_verified is True
                self.n_other_prompt += made.rejected[0].n_prompt_kept != len(made.prompt)
                yield made

    def _gather(self) -> None:
        """Create the tables that the pairs are read from."""
        connection = self.derivation.connection
        sides = pa.Table.from_pylist(
            [
                {
                    "number": number,
                    "side": place,
                    "episode_id": side.episode_id,
                    "step_index": side.step_index,
                }
                for number, pair in enumerate(self.pairs)
                for place, side in enumerate(pair)
            ]
        )
        connection.register("trajkit_sides", sides)
        connection.execute("CREATE OR REPLACE TEMP TABLE trajkit_side AS SELECT * FROM trajkit_sides")
        connection.unregister("trajkit_sides")
        score = self.score.sql if self.score else "NULL"
        connection.execute(_ABOUT.format(score=score, keys=self.key.relation))
        mine = "(SELECT * FROM steps WHERE episode_id IN (SELECT episode_id FROM trajkit_side) AND {})"
        begins = ">=" if self.level == "episode" else "="
        answer = OWN_ANSWER if self.match == "demonstration" else "completion"
        into = "CREATE OR REPLACE TEMP TABLE trajkit_turn AS"
        for span in itertools.chain(("false",), spans(connection, self.derivation.store)):
            steps = full_steps(mine.format(span))
            connection.execute(f"{into} {_TURNS.format(steps=steps, begins=begins, answer=answer)}")
            into = "INSERT INTO trajkit_turn"
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE trajkit_turn AS SELECT * FROM trajkit_turn "
            "ORDER BY number, side, step_index"
        )

    def _read(self, first: int, end: int) -> tuple[dict[str, _About], dict[tuple[int, int], _Half]]:
        run = self.derivation.connection.execute
        these = f"number BETWEEN {first} AND {end - 1}"
        about = run(
            "SELECT * FROM trajkit_about WHERE episode_id IN "
            f"(SELECT episode_id FROM trajkit_side WHERE {these})"
        ).fetchall()
        rows = run(f"SELECT * FROM trajkit_turn WHERE {these} ORDER BY number, side, step_index").fetchall()
        halves = {
            (number, place): _half([row[2:] for row in own])
            for (number, place), own in itertools.groupby(rows, key=lambda row: (row[0], row[1]))
        }
        return {row[0]: _About(*row) for row in about}, halves

    def _pair(self, pair: Picked, about: dict[str, _About], chosen: _Half, rejected: _Half) -> Pair:
        better, worse = about[pair.chosen.episode_id], about[pair.rejected.episode_id]
        turns, action, inference_id = chosen.turns, chosen.action, chosen.inference_id
        is_shown = self.match == "demonstration"
        if is_shown:
            turns = (
                turns[0].model_copy(update={"completion": demonstrated(chosen.demonstration or "null")}),
            )
            action = inference_id = None
        other = rejected.turns
        if rejected.prompt != chosen.prompt:
            own = {"n_prompt_kept": 0, "messages": rejected.prompt}
            other = (other[0].model_copy(update=own), *other[1:])
        return Pair(
            pair_id=_pair_id(self.match, self.level, pair),
            match=self.match,
            level=self.level,
            env_id=better.env_id,
            task=better.task,
            seed=better.seed if better.seed == worse.seed else None,
            initial_state_hash=better.initial_state_hash
            if better.initial_state_hash == worse.initial_state_hash
            else None,
            split=self.derivation.store.manifest.split,
            chosen_group_key=better.key,
            rejected_group_key=worse.key,
            chosen_episode_id=better.episode_id,
            chosen_step_index=turns[0].step_index,
            chosen_inference_id=inference_id,
            rejected_episode_id=worse.episode_id,
            rejected_step_index=other[0].step_index,
            rejected_inference_id=rejected.inference_id,
            chosen_action=action,
            rejected_action=rejected.action,
            chosen_score=None if is_shown else better.score,
            rejected_score=None if is_shown else worse.score,
            is_verified=self.witness.saw(better.episode_id, worse.episode_id) if self.witness else None,
            prompt=chosen.prompt,
            tools=chosen.tools,
            chosen=turns,
            rejected=other,
        )


def _half(rows: Sequence[tuple[Any, ...]]) -> _Half:
    """Make a side from the rows of its steps, as `_TURNS` selects them."""
    _, prompt, tools, _, _, _, _, inference_id, _, demonstration = rows[0]
    messages = _messages(prompt) or ()
    turns = [
        Turn(
            step_index=row[0],
            n_prompt_kept=row[3],
            messages=_messages(row[4]),
            completion=None if row[5] in (None, "null") else Message.model_validate_json(row[5]),
            loss_weight=row[6],
        )
        for row in rows
    ]
    turns[0] = turns[0].model_copy(update={"n_prompt_kept": len(messages), "messages": ()})
    actions = [row[8] for row in rows if row[8] is not None]
    return _Half(
        prompt=messages,
        tools=None if tools in (None, "null") else json.loads(tools),
        turns=tuple(turns),
        inference_id=inference_id,
        action=actions[0] if actions else None,
        demonstration=demonstration,
    )


def _messages(text: str | None) -> tuple[Message, ...] | None:
    if text is None or text == "null":
        return None
    return tuple(Message.model_validate(value) for value in json.loads(text))


def _pair_id(match: str, level: str, pair: Picked) -> str:
    places = [[side.episode_id, side.step_index] for side in pair]
    return hashlib.sha256(json.dumps([match, level, places]).encode()).hexdigest()


def demonstrated(text: str) -> Message:
    """Return the answer that a demonstration's JSON represents.

    A list of content blocks is one message. An object with `raw`, as a gateway stores the output of a JSON
    function, is the text in `raw`. A text is the answer itself, and any other value is the answer as JSON.
    """
    value = json.loads(text)
    if isinstance(value, list) and value and all(isinstance(each, dict) and "type" in each for each in value):
        return Message(role=Role.ASSISTANT, content=tuple(_block(each) for each in value))
    if isinstance(value, dict) and isinstance(value.get("raw"), str):
        value = value["raw"]
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Message(role=Role.ASSISTANT, content=(TextBlock(text=said),))


def _block(value: dict[str, Any]) -> Block:
    if value["type"] == "text" and isinstance(said := value.get("text", value.get("value")), str):
        return TextBlock(text=said)
    if value["type"] == "tool_call":
        arguments = value.get("raw_arguments") or value.get("arguments") or ""
        return ToolCallBlock(
            id=str(value.get("id") or ""),
            name=str(value.get("raw_name") or value.get("name") or ""),
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
        )
    try:
        return _BLOCK.validate_python(value)
    except ValidationError:
        return UnknownBlock(data=value)


def says_the_same(one: Message, other: Message) -> bool:
    """Whether two answers differ only in thoughts, ids of tool calls, or the layout of JSON."""
    return _comparable(one) == _comparable(other)


def _comparable(message: Message) -> list[Any]:
    parts: list[Any] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            parts.append(("text", _value(block.text)))
        elif isinstance(block, ToolCallBlock):
            parts.append(("call", block.name, _value(block.arguments)))
        elif block.type != "thought":
            parts.append(block.model_dump(mode="json"))
    return parts


def _value(text: str) -> Any:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text
