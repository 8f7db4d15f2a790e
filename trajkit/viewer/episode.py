"""Return one episode for the page: facts, steps with shortened texts, other attempts, and full texts.

It is read from its store on demand.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import place_of, readable
from trajkit.errors import NothingMatched, RequestError, StoreError
from trajkit.store.engine import literal, scan
from trajkit.store.layout import TABLES, quoted
from trajkit.store.query import explaining
from trajkit.store.view import columns_of
from trajkit.viewer.filter import Words, one, refuse_others, whole
from trajkit.viewer.index import Shelved
from trajkit.viewer.listing import rows
from trajkit.viewer.shelf import Shelf, TextKey

PIECE = 200_000
"""Characters of a long text per answer."""
MOST_STEPS = 200
"""Steps per answer."""

_MOST_MESSAGES = 500
_MOST_FEEDBACK = 500
_MOST_TWINS = 100
_MOST_OUTLINED = 20_000
_MOST_CHARACTERS = 4_000_000
_OWN = ("tags", "origin", "initial_state_hash", "ended_at", "source")
_SHORT = (
    "function_name",
    "variant_name",
    "model_name",
    "agent_name",
    "parent_step",
    "reward",
    "terminated",
    "truncated",
    "loss_weight",
    "mask_reason",
    "latency_s",
    "cost_usd",
    "cached",
    "finish_reason",
    "started_at",
)
_LONG = (
    "observation",
    "action",
    "tools",
    "demonstration",
    "info",
    "extra",
    "legal_actions",
    "metrics",
)
_NAMES = {
    "step_index": "index",
    "inference_id": "id",
    "n_prompt_kept": "n_kept",
    "action_executed": "executed_action",
    "action_valid": "valid",
    "n_input_tokens": "input_tokens",
    "n_output_tokens": "output_tokens",
}
"""Columns that have another name on the page."""
COLUMNS = (*_NAMES, "messages", "completion", *_SHORT, *_LONG)
"""The columns of the layout that the page shows."""
LONGEST = 20_000
"""Characters of a text that are sent with its step."""
_MAIN = {"text": "text", "thought": "text", "tool_call": "arguments", "tool_result": "result"}
"""The field with the readable text of a block, by the block's type."""
_ROWS_AT_ONCE = 64
_BYTES_AT_ONCE = 64_000_000
_JSON = {
    table: frozenset(column.name for column in columns if column.sql_type == "JSON")
    for table, columns in TABLES.items()
}


class Kept(NamedTuple):
    """The place of an episode in its store."""

    shelved: Shelved
    """The store."""
    episode_id: str
    """Id of the episode."""
    n_steps: int
    """Number of steps."""
    part: str | None
    """The file with its steps; None when it has no steps."""


class PromptMessage(NamedTuple):
    """A message of a prompt, with its place in the store."""

    message: dict[str, Any]
    step: int
    """The step whose row holds it."""
    path: str
    """Its place in that row."""


def episode(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Return an episode with some of its steps; `next` is the index of the next step.

    Raises:
        NothingMatched: There is no such store or episode.
        RequestError: A value is invalid.
    """
    refuse_others(words, ("store", "id", "offset", "limit"))
    kept = _kept(shelf, words)
    offset, limit = whole(words, "offset", 0), whole(words, "limit", MOST_STEPS, most=MOST_STEPS)
    (found,) = rows(shelf.index, _is(kept))
    budget = Budget(_MOST_CHARACTERS)
    if offset == 0:
        found |= _head(shelf, kept, found, budget)
    steps: list[dict[str, Any]] = []
    for row in _steps_of(kept, COLUMNS, offset, offset + limit - 1):
        if steps and budget.is_spent:
            break
        steps.append(shown(row, budget))
    reached = offset + len(steps)
    more = reached if steps and reached < kept.n_steps else None
    return {**found, "offset": offset, "next": more, "steps": steps}


def messages(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Return the prompt of a step, or a part of it; `next` is the index of the next message.

    Raises:
        NothingMatched: There is no such store, episode or step.
        RequestError: A value is invalid.
    """
    refuse_others(words, ("store", "id", "step", "offset", "limit"))
    kept = _kept(shelf, words)
    offset, limit = whole(words, "offset", 0), whole(words, "limit", _MOST_MESSAGES, most=_MOST_MESSAGES)
    prompt = _prompt_of(kept, _step(kept, words))
    if prompt is None:
        return {"messages": None, "n_messages": None, "offset": offset, "next": None}
    budget = Budget(_MOST_CHARACTERS)
    sent: list[dict[str, Any]] = []
    for said in prompt[offset : offset + limit]:
        if sent and budget.is_spent:
            break
        sent.append(message_cut(said.message, step=said.step, path=said.path, budget=budget))
    reached = offset + len(sent)
    more = reached if sent and reached < len(prompt) else None
    return {"messages": sent, "n_messages": len(prompt), "offset": offset, "next": more}


def text(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Return a piece of a long text; `next` is the offset of the next piece, null at the end.

    Raises:
        NothingMatched: There is no such store, episode, step or text.
        RequestError: A value is invalid.
    """
    refuse_others(words, ("store", "id", "step", "path", "offset"))
    kept = _kept(shelf, words)
    step = _step(kept, words) if words.get("step", [""]) != [""] else None
    key = TextKey(kept.shelved.number, kept.episode_id, step, one("path", words.get("path", ("",))))
    offset = whole(words, "offset", 0)
    found = shelf.texts.text(key, lambda: _whole_text(kept, key))
    reached = min(len(found), offset + PIECE)
    return {
        "text": found[offset:reached],
        "offset": offset,
        "next": reached if reached < len(found) else None,
        "n_characters": len(found),
    }


def _head(shelf: Shelf, kept: Kept, row: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """Return the facts that only the first answer has."""
    own = _own_row(kept, _OWN)
    feedback = _feedback_of(kept, _MOST_FEEDBACK)
    for place, item in enumerate(feedback):
        item["value"] = value_cut(item["value"], step=None, path=f"feedback/{place}/value", budget=budget)
    return {
        **{name: value_cut(value, step=None, path=name, budget=budget) for name, value in own.items()},
        "feedback": feedback,
        "outline": _outline(kept),
        "twins": _twins(shelf, kept, row),
    }


def _outline(kept: Kept) -> dict[str, Any]:
    """Return the values of all steps for the curve."""
    found = list(_steps_of(kept, ("reward", "action_valid", "loss_weight"), 0, _MOST_OUTLINED - 1))
    return {
        "rewards": [row["reward"] for row in found],
        "valid": [row["action_valid"] for row in found],
        "weights": [row["loss_weight"] for row in found],
    }


def _twins(shelf: Shelf, kept: Kept, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return other attempts at the same world, in all stores."""
    if row["seed"] is None:
        return []
    world = " AND ".join(
        f"{name} IS NOT DISTINCT FROM {'NULL' if row[name] is None else literal(row[name])}"
        for name in ("env", "task")
    )
    condition = f"{world} AND seed = {row['seed']} AND NOT ({_is(kept)})"
    return rows(shelf.index, condition, f"ORDER BY n LIMIT {_MOST_TWINS}")


def _whole_text(kept: Kept, key: TextKey) -> str:
    name, *rest = key.path.split("/")
    row: dict[str, Any] = {}
    if key.step is not None and name in COLUMNS:
        (row,) = _steps_of(kept, (name,), key.step, key.step)
    elif key.step is None and name == "feedback":
        row = {name: _feedback_of(kept, _MOST_FEEDBACK)}
    elif key.step is None and name in _OWN:
        row = _own_row(kept, (name,))
    try:
        return text_of(found_at(row, [name, *rest]))
    except LookupError as error:
        raise NothingMatched(f"there is no text at {key.path[:200]!r}") from error


def _kept(shelf: Shelf, words: Words) -> Kept:
    number = whole(words, "store", 0)
    if number >= len(shelf.stores):
        raise NothingMatched(f"there is no store {number}", hint=f"the last one is {len(shelf.stores) - 1}")
    if "id" not in words:
        raise RequestError("id is missing", hint="an episode's id")
    shelved, episode_id = shelf.stores[number], one("id", words["id"])
    found = shelf.index.ask(
        f"SELECT n_steps, part FROM rows WHERE store = {number} AND id = {literal(episode_id)}"
    )
    if not found:
        raise NothingMatched(f"no episode {episode_id[:80]!r} in {shelved.name}")
    return Kept(shelved, episode_id, *found[0])


def _is(kept: Kept) -> str:
    return f"(store = {kept.shelved.number} AND id = {literal(kept.episode_id)})"


def _step(kept: Kept, words: Words) -> int:
    step = whole(words, "step")
    if step >= kept.n_steps:
        raise NothingMatched(
            f"episode {kept.episode_id[:80]} has {kept.n_steps} steps; there is no step {step}"
        )
    return step


def shown(row: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """Return a step's row for the page, with long values shortened.

    Args:
        row: Values of `COLUMNS`; `metrics` may be missing.
        budget: Characters that the answer may still hold.
    """
    index, new, answer = row["step_index"], row["messages"], row["completion"]
    messages: list[dict[str, Any]] = []
    for place, message in enumerate(new or ()):
        if messages and budget.is_spent:
            break
        messages.append(message_cut(message, step=index, path=f"messages/{place}", budget=budget))
    found = {
        **{called: row[name] for name, called in _NAMES.items()},
        "new_messages": None if new is None else messages,
        "n_new_messages": None if new is None else len(new),
        "completion": None,
        **{name: row[name] for name in _SHORT},
        **{name: value_cut(row.get(name), step=index, path=name, budget=budget) for name in _LONG},
    }
    if answer is not None:
        found["completion"] = message_cut(answer, step=index, path="completion", budget=budget)
    return found


class Budget:
    """The number of characters that an answer may still hold. The first value always fits.

    Args:
        n_characters: Characters of the answer.
    """

    def __init__(self, n_characters: int) -> None:
        self._left = n_characters

    @property
    def is_spent(self) -> bool:
        """Whether nothing more fits."""
        return self._left <= 0

    def take(self, n_characters: int) -> None:
        """Subtract a value of this size."""
        self._left -= n_characters + 50  # the JSON syntax around it


def message_cut(message: dict[str, Any], *, step: int, path: str, budget: Budget) -> dict[str, Any]:
    """Return a message for the page, with long blocks shortened, and those beyond the budget counted."""
    blocks: list[dict[str, Any]] = []
    content = message["content"]
    for place, block in enumerate(content):
        if budget.is_spent and blocks:
            return {"role": message["role"], "blocks": blocks, "n_blocks_left": len(content) - place}
        blocks.append(_block_cut(block, step=step, path=f"{path}/content/{place}", budget=budget))
    return {"role": message["role"], "blocks": blocks}


def value_cut(value: Any, *, step: int | None, path: str, budget: Budget) -> Any:
    """Return any other value: whole, or the beginning of its text and the place of the rest."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = text_of(value)
    budget.take(min(len(text), LONGEST))
    return value if len(text) <= LONGEST else {"text": text[:LONGEST], "cut": _cut(text, step, path)}


def text_of(value: Any) -> str:
    """Return a text unchanged, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def found_at(row: Any, steps: Iterable[str]) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: There is none.
    """
    for step in steps:
        if isinstance(row, list) and step.isascii() and step.isdecimal():
            row = row[int(step[:18])]
        elif isinstance(row, dict):
            row = row[step]
        else:
            raise LookupError(step)
    return row


def _block_cut(block: dict[str, Any], *, step: int, path: str, budget: Budget) -> dict[str, Any]:
    main = _MAIN.get(block["type"])
    shown: dict[str, Any] = {}
    for name, value in block.items():
        text = value if isinstance(value, str) else "" if value is None else text_of(value)
        budget.take(min(len(text), LONGEST))
        if len(text) <= LONGEST:
            shown[name] = value
        elif name == main:
            shown[name], shown["cut"] = text[:LONGEST], _cut(text, step, f"{path}/{name}")
        else:
            shown[name] = {"text": text[:LONGEST], "cut": _cut(text, step, f"{path}/{name}")}
    return shown


def _cut(text: str, step: int | None, path: str) -> dict[str, Any]:
    return {"step": step, "path": path, "n_characters": len(text), "next": LONGEST}


def _steps_of(kept: Kept, names: Sequence[str], first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield some columns of the steps from `first` to `last`, in batches of bounded size; JSON as values."""
    if kept.part is None:
        return
    at_once = _steps_at_once(kept.part)
    source = scan([path for path in kept.shelved.store.parts("steps") if str(path) == kept.part])
    for begin in range(first, min(last, kept.n_steps - 1) + 1, at_once):
        condition = f"step_index BETWEEN {begin} AND {min(last, begin + at_once - 1)}"
        yield from _rows(kept, "steps", names, condition, source=source)


def _own_row(kept: Kept, names: Sequence[str]) -> dict[str, Any]:
    """Return some columns of an episode."""
    (row,) = _rows(kept, "episodes", names, "true")
    return row


def _feedback_of(kept: Kept, limit: int) -> list[dict[str, Any]]:
    """Return the feedback on an episode, the oldest first."""
    names = ("feedback_id", "inference_id", "kind", "metric_name", "value", "tags", "created_at")
    return list(_rows(kept, "feedback", names, "true", rest=f"ORDER BY feedback_id LIMIT {limit}"))


def _prompt_of(kept: Kept, step: int) -> list[PromptMessage] | None:
    """Return every message that the model saw at a step; None when the prompt is unknown."""
    prompt: list[PromptMessage] = []
    is_known = False
    names = ("step_index", "n_prompt_kept", "messages", "completion")
    for row in _steps_of(kept, names, _beginning(kept, step), step):
        index, new = row["step_index"], row["messages"]
        is_known = new is not None
        said = [PromptMessage(message, index, f"messages/{place}") for place, message in enumerate(new or ())]
        prompt = prompt[: row["n_prompt_kept"]] + said
        if index < step and row["completion"] is not None:
            prompt.append(PromptMessage(row["completion"], index, "completion"))
    return prompt if is_known else None


def _beginning(kept: Kept, step: int) -> int:
    """Return the last step up to this one whose prompt is stored whole."""
    found = _steps_of(kept, ("step_index", "n_prompt_kept"), 0, step)
    return max((row["step_index"] for row in found if row["n_prompt_kept"] == 0), default=0)


@functools.lru_cache(maxsize=256)
def _steps_at_once(part: str) -> int:
    """Return the number of steps of a part to read at a time, from their mean size."""
    try:
        metadata = pq.read_metadata(readable(place_of(part)))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{part} could not be read: {error}") from error
    n_bytes = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    return max(1, _BYTES_AT_ONCE * metadata.num_rows // max(1, n_bytes))


def _rows(
    kept: Kept, table: str, names: Sequence[str], condition: str, *, source: str = "", rest: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield rows in the order of the file, which is the order of the steps."""
    store = kept.shelved.store
    known = {column.name for column in columns_of(store, table)}
    listed = ", ".join(quoted(name) for name in names if name in known)
    with explaining(store), kept.shelved.connection.cursor() as cursor:
        reader = cursor.sql(
            f"SELECT {listed} FROM {source or table} WHERE episode_id = {literal(kept.episode_id)} "
            f"AND {condition} {rest}"
        ).to_arrow_reader(_ROWS_AT_ONCE)
        try:
            for batch in reader:
                for row in batch.to_pylist():
                    yield {name: _value(table, name, value) for name, value in row.items()}
        finally:
            reader.close()


def _value(table: str, name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    return json.loads(value) if name in _JSON[table] and isinstance(value, str) else value
