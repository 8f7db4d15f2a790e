"""Preference pairs: of two attempts that part at one state, the better continuation and the worse one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import trajkit
from trajkit._core.files import refuse_existing
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.keys import group_key
from trajkit.curation.options import validated
from trajkit.curation.pair_file import PairsManifest, write_pairs
from trajkit.curation.pair_request import Match, PairOptions
from trajkit.curation.pair_rows import PairRows
from trajkit.curation.pair_search import Found, search
from trajkit.curation.witness import Witness
from trajkit.errors import NothingMatched
from trajkit.schema import Left, LineageEntry
from trajkit.schema.base import Count, JsonObject, Model, Name, Text


class PairsReport(Model):
    """What pairing came to."""

    n_pairs: Count
    """Pairs found."""
    n_verified: Count
    """Those of them whose both episodes are what their environment gives, when replayed."""
    n_other_prompt: Count
    """Those of them whose rejected side was given another prompt than the chosen one."""
    score: Name | None
    """What the episodes were compared by."""
    unverified: dict[Text, Count]
    """Why the others are not verified: episodes by reason."""
    notes: tuple[Text, ...]
    """What a reader should know of them."""


class Paired(NamedTuple):
    """The pairs on disk, and what was done."""

    manifest: PairsManifest | None
    """None when nothing was written."""
    entry: LineageEntry
    """As for a store; its counts are of the episodes in a pair."""
    report: PairsReport


def pairs(path: str | Path, goal: Path | None, *, threads: int | None = None, **options: Any) -> Paired:
    """Write preference pairs from the episodes of a store.

    Both sides of a pair are learned, and do not say the same: what is masked, thoughts and the ids of tool
    calls make no difference. The sides have the same group key, so that no split parts them, unless the store
    is one side of a split already. Pairs by state are verified where trajkit knows the environment: both
    episodes are replayed whole, and one that is not what its environment gives is in no pair.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder that exists afterwards, see `trajkit.curation.pair_file`; None to count only.
        threads: None for one per core.
        **options: The fields of `PairOptions`; `margin` is required but for demonstrations.

    Raises:
        RequestError: An option makes no sense with these.
        QueryError: There is no such score or column.
        NothingMatched: There is no pair; the hint says why.
        MissingExtra: The environment's package is not installed.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    asked = validated(PairOptions, options, of="pairs")
    if goal is not None:
        refuse_existing(goal)
    with deriving(path, threads=threads) as derivation:
        key = group_key(derivation.connection, derivation.store, asked.by)
        witness = Witness(derivation, asked.env) if asked.verify and asked.match == Match.STATE else None
        found = search(derivation, asked, key, witness)
        arguments = asked.model_dump(mode="json")
        arguments["score"] = found.score.name if found.score else None
        entry = _entry(derivation, arguments, found)
        if not found.pairs:
            raise _nothing(derivation, asked.match, entry, found)
        rows = PairRows(
            derivation, found.pairs, found.score, key, witness, match=asked.match, level=asked.level
        )
        if goal is None:
            return Paired(None, entry, _report(found, rows.counted(), witness))
        manifest = write_pairs(
            goal,
            rows,
            facts={
                "match": asked.match.value,
                "level": asked.level.value,
                "score": arguments["score"],
                "split": derivation.store.manifest.split,
                "group": key.words,
                **_origin(derivation),
                "created_at": datetime.now(UTC).isoformat(),
                "trajkit_version": trajkit.__version__,
            },
            lineage=(*derivation.store.manifest.lineage, entry),
        )
        return Paired(manifest, entry, _report(found, rows, witness))


def _entry(derivation: Derivation, arguments: JsonObject, found: Found) -> LineageEntry:
    connection = derivation.connection
    ids = sorted({side.episode_id for pair in found.pairs for side in pair})
    connection.register("trajkit_ids", pa.table({"episode_id": pa.array(ids, pa.string())}))
    connection.execute("CREATE OR REPLACE TEMP TABLE trajkit_in_pair AS SELECT * FROM trajkit_ids")
    connection.unregister("trajkit_ids")
    left = connection.execute(
        "SELECT coalesce(w.reason, 'in no pair') AS reason, count(*), CAST(sum(n_steps) AS BIGINT) "
        "FROM episodes ANTI JOIN trajkit_in_pair USING (episode_id) "
        "LEFT JOIN trajkit_why w USING (episode_id) GROUP BY reason ORDER BY reason"
    ).fetchall()
    return derivation.entry(
        verb="pairs",
        arguments=arguments,
        kept="trajkit_in_pair",
        left=[Left(reason=reason, n_episodes=n, n_steps=n_steps) for reason, n, n_steps in left],
    )


def _origin(derivation: Derivation) -> JsonObject:
    """The functions and the variants of the episodes in a pair."""
    ((functions, variants),) = derivation.connection.execute(
        "SELECT list_sort(list(DISTINCT function_name)), list_sort(list(DISTINCT variant_name)) "
        "FROM steps SEMI JOIN trajkit_in_pair USING (episode_id)"
    ).fetchall()
    return {
        name: [each for each in found or () if each is not None]
        for name, found in (("functions", functions), ("variants", variants))
    }


def _nothing(derivation: Derivation, match: Match, entry: LineageEntry, found: Found) -> NothingMatched:
    told = [f"{each.n_episodes:,} episodes: {each.reason}" for each in entry.left] + found.notes
    if match == Match.STATE and any(each.reason == "no seed and no initial state" for each in entry.left):
        told.append("--match prompt needs no seeds")
    return NothingMatched(
        f"no pair in {derivation.store.path}", hint="; ".join(told) or "the store has no episodes"
    )


def _report(found: Found, rows: PairRows, witness: Witness | None) -> PairsReport:
    return PairsReport(
        n_pairs=len(found.pairs),
        n_verified=rows.n_verified,
        n_other_prompt=rows.n_other_prompt,
        score=found.score.name if found.score else None,
        unverified=dict(sorted(witness.unchecked().items())) if witness else {},
        notes=tuple(found.notes),
    )
