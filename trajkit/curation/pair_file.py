"""Preference pairs on disk: one Parquet file, and a manifest beside it that is written last.

    PAIRS/
      pairs.parquet   one row per pair, the columns of `PAIR_COLUMNS`
      pairs.json      format version, digest, counts, lineage, split, sha256

A side is a list of turns, as JSON. The prompt of a turn is the first `n_prompt_kept` messages of (prompt of
the previous turn, then its completion), followed by its `messages`, as in a store; the prompt before the
first turn is the column `prompt`. So one turn is an answer, and several are the rest of an episode, also if
the agent rewrites its history in each prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

import trajkit
from trajkit._core.address import place_of, readable
from trajkit._core.files import building_folder, sha256_file, unwritable, write_text
from trajkit.errors import DataError, StoreError
from trajkit.schema import LineageEntry, Message
from trajkit.schema.base import Count, JsonObject, Model, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.store.arrow import json_text, message_value

if TYPE_CHECKING:
    import pyarrow as pa

PAIRS_VERSION = 1
"""The format version that is written, and the newest that can be read."""
DATA_NAME, MANIFEST_NAME = "pairs.parquet", "pairs.json"

_ROWS_PER_GROUP = 256
_JSON = ("prompt", "tools", "chosen", "rejected")


class Turn(Model):
    """One answer of a side, with the messages before it."""

    step_index: Count
    """Index of the step in its episode."""
    n_prompt_kept: Count
    """Leading messages of its prompt that come from the previous turn (its prompt, then its completion)."""
    messages: tuple[Message, ...] | None
    """The messages after those; None if the prompt is unknown."""
    completion: Message | None
    """The answer; None if there is none."""
    loss_weight: float
    """0 if the turn is only context."""


class Pair(Model):
    """Two continuations of one state, the better one first."""

    pair_id: Sha256
    """Hash of `match`, `level`, and episode and step of both sides."""
    match: Name
    """What both sides share: `state`, `prompt` or `demonstration`."""
    level: Name
    """`step`: each side is one answer. `episode`: each side has all turns to the end of its episode."""
    env_id: Text | None
    """The environment."""
    task: Text | None
    """The task."""
    seed: int | None
    """The seed of both; None if they have none, or different ones."""
    initial_state_hash: Text | None
    """The initial state of both; None if unknown or different."""
    split: Text | None
    """Name of the side of a split that the store is; None if it is not one."""
    chosen_group_key: Text
    """Group key of the chosen side's episode. A split must not separate the two keys."""
    rejected_group_key: Text
    """Group key of the rejected side's episode; different only if the store is one side of a split."""
    chosen_episode_id: Name
    """Episode of the better continuation, or of the demonstration."""
    chosen_step_index: Count
    """The first step of that side."""
    chosen_inference_id: Text | None
    """Its inference; None if unknown, and for a demonstration."""
    rejected_episode_id: Name
    """Episode of the worse continuation."""
    rejected_step_index: Count
    """The first step of that side."""
    rejected_inference_id: Text | None
    """Its inference; None if unknown."""
    chosen_action: Text | None
    """Action at the chosen side's first step; None if unknown."""
    rejected_action: Text | None
    """Action at the rejected side's first step; None if unknown."""
    chosen_score: float | None
    """Score of the chosen episode; None for a demonstration."""
    rejected_score: float | None
    """Score of the rejected episode; None if unknown."""
    is_verified: bool | None
    """Whether a replay of both episodes confirmed them; None if they were not replayed."""
    prompt: tuple[Message, ...]
    """The prompt of the chosen side's first turn."""
    tools: tuple[JsonObject, ...] | None
    """The tools it could call there."""
    chosen: Annotated[tuple[Turn, ...], Field(min_length=1)]
    """The better continuation."""
    rejected: Annotated[tuple[Turn, ...], Field(min_length=1)]
    """The worse continuation. If its prompt differs, its first turn's `messages` have that prompt."""


PAIR_COLUMNS = tuple(Pair.model_fields)
"""The columns, in order."""


class PairsManifest(Model):
    """Facts about a set of pairs."""

    format_version: Annotated[int, Field(ge=1)] = PAIRS_VERSION
    """Version of the format."""
    digest: Sha256
    """Hash of the rows in order: the same for the same pairs."""
    sha256: Sha256
    """Hash of the Parquet file."""
    n_pairs: Count
    """Number of pairs."""
    n_verified: Count
    """Pairs of which a replay confirmed both episodes."""
    n_episodes: Count
    """Episodes on either side."""
    match: Name
    """What both sides share: `state`, `prompt` or `demonstration`."""
    level: Name
    """`step` or `episode`."""
    score: Name | None
    """The score that the sides were compared by; None for demonstrations."""
    split: Text | None
    """Name of the side of a split that the store was."""
    group: Text
    """The group keys, in words."""
    functions: tuple[Name, ...] = ()
    """The gateway's functions that the pairs' episodes called; empty if unknown."""
    variants: tuple[Name, ...] = ()
    """The variants that answered in them."""
    lineage: tuple[LineageEntry, ...]
    """Commands from the source on; the last entry made the pairs."""
    created_at: UtcTime
    """Time at which the pairs were written."""
    trajkit_version: Name
    """The trajkit that wrote them."""


@dataclass(frozen=True)
class Pairs:
    """A set of pairs on disk."""

    path: Path
    """The folder."""
    manifest: PairsManifest
    """The manifest."""

    def __len__(self) -> int:
        return self.manifest.n_pairs

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over the pairs in order, reading them lazily."""
        for row in self.rows():
            for name in _JSON:
                row[name] = None if row[name] is None else json.loads(row[name])
            yield Pair.model_validate(row, strict=False)

    def rows(self, *names: str) -> Iterator[dict[str, Any]]:
        """Iterate over some columns of the pairs, or all, as they are in the file."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(readable(self.path / DATA_NAME)) as file:
            for batch in file.iter_batches(_ROWS_PER_GROUP, columns=list(names) or None):
                yield from batch.to_pylist()


def open_pairs(path: str | Path) -> Pairs:
    """Open a set of pairs and verify its checksum.

    Raises:
        StoreError: This trajkit cannot read it, or the file was changed.
    """
    folder = place_of(path)
    try:
        text = (folder / MANIFEST_NAME).read_text(encoding="utf-8")
        value = json.loads(text)
        version = value.get("format_version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > PAIRS_VERSION:
            raise StoreError(
                f"{folder} was written by version {version} of the pairs; this trajkit reads up to "
                f"{PAIRS_VERSION}",
                hint="pip install -U trajkit",
            )
        manifest = PairsManifest.model_validate_json(text)
        found = sha256_file(folder / DATA_NAME)
    except FileNotFoundError as error:
        raise StoreError(
            f"there are no pairs at {folder}: no {Path(error.filename or DATA_NAME).name}",
            hint="`trajkit pairs` makes some",
        ) from error
    except (OSError, ValueError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise StoreError(f"{folder / MANIFEST_NAME} cannot be read: {what}") from error
    if found != manifest.sha256:
        raise StoreError(f"{folder / DATA_NAME} is not the file that was written: its sha256 differs")
    return Pairs(folder, manifest)


def write_pairs(
    goal: Path, pairs: Iterable[Pair], *, facts: JsonObject, lineage: tuple[LineageEntry, ...]
) -> PairsManifest:
    """Write a set of pairs, some hundred in memory at a time.

    Args:
        goal: The folder to write.
        pairs: In their order.
        facts: Fields of the manifest that do not follow from the pairs.
        lineage: The lineage, oldest entry first.

    Raises:
        StoreError: `goal` exists, or cannot be written.
        DataError: A split could separate the groups of a pair's sides.
    """
    try:
        with building_folder(goal) as folder:
            counts = _write(folder / DATA_NAME, pairs)
            made = {"created_at": datetime.now(UTC), "trajkit_version": trajkit.__version__}
            sha256 = sha256_file(folder / DATA_NAME)
            manifest = PairsManifest.model_validate(
                {**facts, **counts, **made, "sha256": sha256, "lineage": lineage}
            )
            write_text(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise unwritable(goal, error) from error
    return manifest


def _write(path: Path, pairs: Iterable[Pair]) -> dict[str, Any]:
    """Write the rows, and return their counts and digest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, digest, episodes = _schema(), hashlib.sha256(), set()
    n_pairs = n_verified = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        waiting: list[dict[str, Any]] = []
        for pair in pairs:
            _refuse_crossing(pair)
            row = _row(pair)
            n_pairs += 1
            n_verified += pair.is_verified is True
            episodes |= {pair.chosen_episode_id, pair.rejected_episode_id}
            digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")
            waiting.append(row)
            if len(waiting) == _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                waiting = []
        writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
    counts = {"n_pairs": n_pairs, "n_verified": n_verified, "n_episodes": len(episodes)}
    return {**counts, "digest": digest.hexdigest()}


def _refuse_crossing(pair: Pair) -> None:
    if pair.chosen_group_key != pair.rejected_group_key and pair.split is None:
        raise DataError(
            f"a split could separate the pair of the episodes {pair.chosen_episode_id} and "
            f"{pair.rejected_episode_id}",
            hint="run `trajkit split` first, then pair the episodes of one side",
        )


def _schema() -> pa.Schema:
    import pyarrow as pa

    special: dict[str, pa.DataType] = {
        "seed": pa.int64(),
        "chosen_step_index": pa.int64(),
        "rejected_step_index": pa.int64(),
        "chosen_score": pa.float64(),
        "rejected_score": pa.float64(),
        "is_verified": pa.bool_(),
        **dict.fromkeys(_JSON, pa.json_(pa.string())),
    }
    return pa.schema([(name, special.get(name, pa.string())) for name in PAIR_COLUMNS])


def _row(pair: Pair) -> dict[str, Any]:
    row = pair.model_dump(mode="python", exclude=set(_JSON))
    row["prompt"] = json_text([message_value(each) for each in pair.prompt])
    row["tools"] = None if pair.tools is None else json_text(list(pair.tools))
    row["chosen"], row["rejected"] = (
        json_text([_turn_value(turn) for turn in turns]) for turns in (pair.chosen, pair.rejected)
    )
    return row


def _turn_value(turn: Turn) -> dict[str, Any]:
    messages = None if turn.messages is None else [message_value(each) for each in turn.messages]
    completion = None if turn.completion is None else message_value(turn.completion)
    return {**dict(turn), "messages": messages, "completion": completion}
