"""Preference pairs on disk: one Parquet file, and a manifest beside it that is written last.

    PAIRS/
      pairs.parquet   one row per pair, the columns of `PAIR_COLUMNS`
      pairs.json      format version, digest, counts, lineage, split, sha256

A side is a list of turns, as JSON. The prompt of a turn is the first `n_prompt_kept` messages of (prompt of
the turn before, then its completion), followed by its `messages`, as in a store; before the first turn comes
the column `prompt`. So one turn is an answer, and several are the rest of an episode, also of an agent that
writes its history into each prompt anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from trajkit._core.files import building_folder, sha256_file, write_text
from trajkit.errors import DataError, StoreError
from trajkit.schema import LineageEntry, Message
from trajkit.schema.base import Count, JsonObject, Model, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.store.arrow import message_value

if TYPE_CHECKING:
    import pyarrow as pa

PAIRS_VERSION = 1
"""The version of this format that is written, and the newest that is read."""
DATA_NAME, MANIFEST_NAME = "pairs.parquet", "pairs.json"

_ROWS_PER_GROUP = 256
_JSON = ("prompt", "tools", "chosen", "rejected")


class Turn(Model):
    """One answer of a side, with what came before it."""

    step_index: Count
    """The step of the episode."""
    n_prompt_kept: Count
    """Leading messages of its prompt that are those of the turn before (its prompt, then its completion)."""
    messages: tuple[Message, ...] | None
    """The messages after those; None when the prompt is unknown."""
    completion: Message | None
    """The answer; None when no model gave one."""
    loss_weight: float
    """0 when it is context only."""


class Pair(Model):
    """Two continuations of one state, the better one first."""

    pair_id: Sha256
    """Hash of what was matched and of both sides' places."""
    match: Name
    """`state`, `prompt` or `demonstration`: what the two sides have in common."""
    level: Name
    """`step`: each side is one answer. `episode`: each side is all turns from there to the end."""
    env_id: Text | None
    """The environment."""
    task: Text | None
    """The task."""
    seed: int | None
    """The seed of both; None where they have none, or not the same."""
    initial_state_hash: Text | None
    """The initial state of both; None where it is unknown, or not the same."""
    split: Text | None
    """Which side of a split the store is; None when it is not one."""
    chosen_group_key: Text
    """The key that keeps episodes together, of the chosen side. No split may part the two keys."""
    rejected_group_key: Text
    """The same of the rejected side: another one only where the store is one side of a split already."""
    chosen_episode_id: Name
    """Whose continuation is better; of a demonstration, the episode that it was given for."""
    chosen_step_index: Count
    """The first step of that side."""
    chosen_inference_id: Text | None
    """Its inference; None when unknown, and for a demonstration."""
    rejected_episode_id: Name
    """Whose continuation is worse."""
    rejected_step_index: Count
    """The first step of that side."""
    rejected_inference_id: Text | None
    """Its inference; None when unknown."""
    chosen_action: Text | None
    """What was done at the chosen side's first step; None when unknown."""
    rejected_action: Text | None
    """What was done at the rejected side's."""
    chosen_score: float | None
    """Score of the chosen episode; None for a demonstration."""
    rejected_score: float | None
    """Score of the rejected episode; None when unknown."""
    is_verified: bool | None
    """Both episodes were replayed and are what their environment gives; None when they were not."""
    prompt: tuple[Message, ...]
    """What the model saw before the chosen side's first turn."""
    tools: tuple[JsonObject, ...] | None
    """The tools it could call there."""
    chosen: Annotated[tuple[Turn, ...], Field(min_length=1)]
    """The better continuation."""
    rejected: Annotated[tuple[Turn, ...], Field(min_length=1)]
    """The worse one. Where it was given another prompt, that is its first turn's `messages`."""


PAIR_COLUMNS = tuple(Pair.model_fields)
"""The columns, in order."""


class PairsManifest(Model):
    """What a set of pairs says of itself."""

    format_version: Annotated[int, Field(ge=1)] = PAIRS_VERSION
    """Version of the format."""
    digest: Sha256
    """Hash of the rows in order: the same for the same pairs."""
    sha256: Sha256
    """Of the Parquet file's bytes."""
    n_pairs: Count
    """How many there are."""
    n_verified: Count
    """Those of them whose both episodes were replayed and are what their environment gives."""
    n_episodes: Count
    """Episodes on either side."""
    match: Name
    """What the two sides have in common."""
    level: Name
    """`step` or `episode`."""
    score: Name | None
    """What the sides were compared by; None for demonstrations."""
    split: Text | None
    """Which side of a split the store was."""
    group: Text
    """What the group keys are, in words."""
    functions: tuple[Name, ...] = ()
    """The gateway's functions that the episodes in a pair called; empty where nobody says."""
    variants: tuple[Name, ...] = ()
    """The variants that answered in them."""
    lineage: tuple[LineageEntry, ...]
    """What was done from the source on; the last entry made the pairs."""
    created_at: UtcTime
    """When."""
    trajkit_version: Name
    """By which version."""


@dataclass(frozen=True)
class Pairs:
    """A set of pairs on disk."""

    path: Path
    """The folder."""
    manifest: PairsManifest
    """What it says of itself."""

    def __len__(self) -> int:
        return self.manifest.n_pairs

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Pair]:
        """The pairs in their order, read as they are asked for."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path / DATA_NAME) as file:
            for batch in file.iter_batches(_ROWS_PER_GROUP):
                for row in batch.to_pylist():
                    yield Pair.model_validate(
                        {name: _parsed(name, value) for name, value in row.items()}, strict=False
                    )


def open_pairs(path: str | Path) -> Pairs:
    """Open a set of pairs; its checksum is verified.

    Raises:
        StoreError: It is not one that this trajkit can read, or the file is not the one that was written.
    """
    folder = Path(path)
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
            f"there are no pairs at {folder}: no {Path(error.filename).name}",
            hint="`trajkit pairs` makes some",
        ) from error
    except (OSError, ValueError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise StoreError(f"{folder / MANIFEST_NAME} cannot be read: {what}") from error
    if found != manifest.sha256:
        raise StoreError(f"{folder / DATA_NAME} is not the file that was written: its sha256 differs")
    return Pairs(folder, manifest)


class Written:
    """Counts and the digest of what is written, row by row."""

    def __init__(self) -> None:
        self.n_pairs = self.n_verified = 0
        self.episodes: set[str] = set()
        self._digest = hashlib.sha256()

    def add(self, row: dict[str, Any]) -> None:
        """Take note of a row."""
        self.n_pairs += 1
        self.n_verified += row["is_verified"] is True
        self.episodes.update((row["chosen_episode_id"], row["rejected_episode_id"]))
        self._digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")

    @property
    def digest(self) -> str:
        """Of the rows so far."""
        return self._digest.hexdigest()


def write_pairs(
    goal: Path, pairs: Iterable[Pair], *, facts: JsonObject, lineage: tuple[LineageEntry, ...]
) -> PairsManifest:
    """Write a set of pairs, some hundred in memory at a time.

    Args:
        goal: The folder that exists afterwards.
        pairs: In their order.
        facts: The other fields of the manifest.
        lineage: What was done, oldest first.

    Raises:
        StoreError: `goal` exists, or cannot be written.
        DataError: The sides of a pair belong to groups that a split could part.
    """
    written = Written()
    try:
        with building_folder(goal) as folder:
            _write(folder / DATA_NAME, pairs, written)
            manifest = PairsManifest.model_validate(
                {
                    **facts,
                    "digest": written.digest,
                    "sha256": sha256_file(folder / DATA_NAME),
                    "n_pairs": written.n_pairs,
                    "n_verified": written.n_verified,
                    "n_episodes": len(written.episodes),
                    "lineage": lineage,
                }
            )
            write_text(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise StoreError(f"{goal} could not be written: {error.strerror or error}") from error
    return manifest


def _write(path: Path, pairs: Iterable[Pair], written: Written) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        waiting: list[dict[str, Any]] = []
        for pair in pairs:
            _refuse_crossing(pair)
            row = _row(pair)
            written.add(row)
            waiting.append(row)
            if len(waiting) == _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                waiting = []
        writer.write_table(pa.Table.from_pylist(waiting, schema=schema))


def _refuse_crossing(pair: Pair) -> None:
    if pair.chosen_group_key != pair.rejected_group_key and pair.split is None:
        raise DataError(
            f"a split could part the pair of the episodes {pair.chosen_episode_id} and "
            f"{pair.rejected_episode_id}",
            hint="pair what is on one side of a split: `trajkit split` first",
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
    row["prompt"] = _text([message_value(each) for each in pair.prompt])
    row["tools"] = None if pair.tools is None else _text(list(pair.tools))
    row["chosen"], row["rejected"] = (
        _text([_turn_value(turn) for turn in turns]) for turns in (pair.chosen, pair.rejected)
    )
    return row


def _turn_value(turn: Turn) -> dict[str, Any]:
    messages = None if turn.messages is None else [message_value(each) for each in turn.messages]
    completion = None if turn.completion is None else message_value(turn.completion)
    return {**dict(turn), "messages": messages, "completion": completion}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _parsed(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON and value is not None else value
