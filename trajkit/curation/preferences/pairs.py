"""Write preference pairs: the better and the worse continuation of two attempts that share a state."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import pyarrow as pa
from pydantic import Field, model_validator

from trajkit._core.files import refuse_existing
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.keys import Key, group_key
from trajkit.curation.options import validated
from trajkit.curation.pair_file import PairsManifest, write_pairs
from trajkit.curation.preferences.pairing import (
    IS_LEARNED,
    Picked,
    Side,
    find_candidates,
    n_prompts_apart,
    pick,
)
from trajkit.curation.preferences.rows import OWN_ANSWER, PairRows, demonstrated, says_the_same
from trajkit.curation.replays.episode import Witness
from trajkit.curation.selection.groups import Score, score_of
from trajkit.errors import NothingMatched
from trajkit.schema import Left, LineageEntry, Message
from trajkit.schema.base import Count, JsonObject, Model, Name, Text


class PairsReport(Model):
    """Counts of the pairs."""

    n_pairs: Count
    """Pairs found."""
    n_verified: Count
    """Pairs of which a replay confirmed both episodes."""
    n_other_prompt: Count
    """Pairs whose rejected side has another prompt than the chosen one."""
    score: Name | None
    """The score that the episodes were compared by."""
    unverified: dict[Text, Count]
    """Episodes that could not be replayed, by reason."""
    notes: tuple[Text, ...]
    """Notes for the reader."""


class Paired(NamedTuple):
    """The pairs on disk, their lineage entry and counts."""

    manifest: PairsManifest | None
    """None if nothing was written."""
    entry: LineageEntry
    """As for a store. It counts the episodes in pairs."""
    report: PairsReport


def pairs(path: str | Path, goal: Path | None, **options: Any) -> Paired:
    """Write preference pairs from the episodes of a store.

    Both sides of a pair are learned and have different answers; masked steps, thoughts and the ids of tool
    calls are not compared. The sides have the same group key, so that no split separates them, unless the
    store is already one side of a split. Pairs by state are verified if trajkit knows the environment: both
    episodes are replayed whole, and an episode that its environment does not reproduce is in no pair.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write, see `trajkit.curation.pair_file`; None only counts.
        **options: The fields of `PairOptions`; `margin` is required except for demonstrations.

    Raises:
        RequestError: An option is unknown, invalid, or does not fit the others.
        QueryError: The score or a column does not exist.
        NothingMatched: There is no pair; the hint says why.
        MissingExtra: The environment's package is not installed.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    asked = validated(PairOptions, options, of="pairs")
    if goal is not None:
        refuse_existing(goal)
    with deriving(path) as derivation:
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
            },
            lineage=(*derivation.store.manifest.lineage, entry),
        )
        return Paired(manifest, entry, _report(found, rows, witness))


def _entry(derivation: Derivation, arguments: JsonObject, found: Found) -> LineageEntry:
    connection = derivation.connection
    ids = sorted({side.episode_id for pair in found.pairs for side in pair})
    connection.execute("CREATE OR REPLACE TEMP TABLE trajkit_in_pair (episode_id VARCHAR)")
    connection.from_arrow(pa.table({"episode_id": pa.array(ids, pa.string())})).insert_into("trajkit_in_pair")
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
    """Return the functions and variants of the episodes in pairs."""
    ((functions, variants),) = derivation.connection.execute(
        "SELECT list_sort(list(DISTINCT function_name)), list_sort(list(DISTINCT variant_name)) "
        "FROM steps SEMI JOIN trajkit_in_pair USING (episode_id)"
    ).fetchall()
    return {
        name: [each for each in found or () if each is not None]
        for name, found in (("functions", functions), ("variants", variants))
    }


def _nothing(derivation: Derivation, match: Match, entry: LineageEntry, found: Found) -> NothingMatched:
    hints = [f"{each.n_episodes:,} episodes: {each.reason}" for each in entry.left] + found.notes
    if match == Match.STATE and any(each.reason == "no seed and no initial state" for each in entry.left):
        hints.append("--match prompt needs no seeds")
    return NothingMatched(
        f"no pair in {derivation.store.path}", hint="; ".join(hints) or "the store has no episodes"
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


class Match(StrEnum):
    """What the two sides of a pair share."""

    STATE = "state"
    """Environment, task, seed, initial state, and all observations and actions up to the first divergence."""
    PROMPT = "prompt"
    """The prompt and its tools."""
    DEMONSTRATION = "demonstration"
    """The step. Its answer is rejected, and the demonstration that was given for it is chosen."""


class Level(StrEnum):
    """How long a side is."""

    STEP = "step"
    """One answer."""
    EPISODE = "episode"
    """All turns from there to the end of the episode."""


class PairOptions(Model):
    """The options of `trajkit.curation.preferences.pairs.pairs`."""

    match: Match = Match.STATE
    """What the sides share."""
    level: Level = Level.STEP
    """How long a side is; a demonstration is always one answer."""
    margin: float | None = None
    """Minimum difference between the scores of both episodes, above 0. Required, except for demonstrations,
    which have no score."""
    per_state: Annotated[int, Field(ge=1)] = 1
    """Maximum pairs per state or prompt: those with the largest margins."""
    same_prompt: bool = False
    """Whether pairs by state must also share the prompt and tools. Then variants with different prompts are
    not paired, and neither are histories with different thoughts."""
    score: Name | None = None
    """The score to compare by; None for `episode_return` if the store has it, else `total_reward`."""
    by: tuple[Text, ...] = ()
    """Columns that make the group key; empty for the default (`trajkit.curation.keys`)."""
    include_eval: bool = False
    """Whether to pair evaluation episodes, too, with each other."""
    verify: bool = True
    """Whether to replay pairs by state where possible."""
    env: Name | None = None
    """The environment to replay in, such as `my_pkg.env:MyEnv`. None replays only environments that trajkit
    knows, and never code that only the data names."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.match == Match.DEMONSTRATION:
            if self.margin is not None or self.score is not None:
                raise ValueError("a demonstration has no score: leave out --margin and --score")
            if self.level != Level.STEP:
                raise ValueError("a demonstration is one answer: --level step")
        elif self.margin is None:
            raise ValueError("--margin is missing: the least difference of the two scores, such as 0.1")
        elif self.margin <= 0:
            raise ValueError(f"--margin {self.margin} is not above 0")
        if self.match != Match.STATE and (self.same_prompt or self.env is not None):
            raise ValueError("--same-prompt and --env are for --match state")
        return self


class Found(NamedTuple):
    """Pairs found in a store."""

    pairs: list[Picked]
    """In an order that depends only on the pairs."""
    score: Score | None
    """The score that they were compared by."""
    notes: list[str]
    """Notes for the reader."""


def search(derivation: Derivation, asked: PairOptions, key: Key, witness: Witness | None) -> Found:
    """Find the pairs, and create a table `trajkit_why` of episodes that cannot be in a pair, with a `reason`.

    Args:
        derivation: The store.
        asked: The options.
        key: The key that keeps episodes together in a split.
        witness: Replays the episodes; None to trust them.

    Raises:
        QueryError: The score does not exist.
        MissingExtra: The environment's package is not installed.
    """
    if asked.match == Match.DEMONSTRATION:
        return _demonstrated(derivation, asked.include_eval)
    score = score_of(derivation.store, derivation.connection, asked.score)
    _attempts(derivation, key, score, asked)
    notes = []
    by_state, is_episode = asked.match == Match.STATE, asked.level == Level.EPISODE
    find_candidates(derivation, by_state=by_state, is_episode=is_episode, same_prompt=asked.same_prompt)
    if not by_state and (n_apart := n_prompts_apart(derivation)):
        notes.append(
            f"{n_apart:,} prompts have different answers in several groups ({key.words}) and are paired only "
            "within one, because a split may separate groups: run `trajkit split` first, then pair a side"
        )
    picked = _picked(derivation, asked, witness)
    return Found(picked, score, notes if picked else [*notes, *_why_none(derivation, score, asked)])


def _picked(derivation: Derivation, asked: PairOptions, witness: Witness | None) -> list[Picked]:
    while True:
        picked = pick(derivation, margin=asked.margin or 0.0, per_state=asked.per_state)
        if witness is None:
            return picked
        differing = witness.differing(side.episode_id for pair in picked for side in pair)
        if not differing:
            return picked
        # without these episodes other pairs are picked, whose sides may not have been replayed yet
        derivation.connection.executemany(
            "INSERT INTO trajkit_why VALUES (?, 'replay differs')", [[each] for each in sorted(differing)]
        )
        derivation.connection.execute(
            "DELETE FROM trajkit_candidate WHERE episode_id IN (SELECT episode_id FROM trajkit_why)"
        )


def _why_none(derivation: Derivation, score: Score, asked: PairOptions) -> list[str]:
    """Explain why no attempts could be paired."""
    ((n, least, most, n_candidates, n_parting),) = derivation.connection.execute(
        "SELECT count(*), min(gain), max(gain), (SELECT count(*) FROM trajkit_candidate), "
        "(SELECT count(*) FROM (SELECT state FROM trajkit_candidate GROUP BY state "
        "HAVING min(choice) <> max(choice))) FROM trajkit_attempt"
    ).fetchall()
    if not n:
        return []
    if least == most:
        return [f"all of {n:,} attempts have the same {score.name}"]
    if not n_candidates:
        return ["no step has a known prompt and an answer that is learned"]
    if not n_parting:
        return [f"no two attempts diverge at the same {asked.match}"]
    return [f"where they diverge, no two different answers are {asked.margin:g} of {score.name} apart"]


def _attempts(derivation: Derivation, key: Key, score: Score, asked: PairOptions) -> None:
    """Create `trajkit_attempt`, the episodes that may be paired, and `trajkit_why` for the others."""
    run = derivation.connection.execute
    sign = "-" if score.is_less_better else ""
    # within one side of a split any two episodes may be paired
    shared = "''" if derivation.store.manifest.split is not None else "key"
    world, no_world = "''", "false"
    if asked.match == Match.STATE:
        world = "CAST(to_json([env_id, task, CAST(seed AS VARCHAR), initial_state_hash]) AS VARCHAR)"
        no_world = "seed IS NULL AND nullif(initial_state_hash, '') IS NULL"
    run(
        "CREATE OR REPLACE TEMP TABLE trajkit_asked AS SELECT episode_id, gain, origin, CASE "
        f"WHEN is_eval AND NOT {asked.include_eval} THEN 'played for evaluation' "
        "WHEN gain IS NULL THEN 'no score' WHEN no_world THEN 'no seed and no initial state' END AS reason "
        f"FROM (SELECT episode_id, {sign}({score.sql}) AS gain, purpose = 'eval' AS is_eval, "
        f"{no_world} AS no_world, "
        f"CAST(to_json([{shared}, {world}, purpose]) AS VARCHAR) AS origin "
        f"FROM episodes JOIN (SELECT episode_id, key FROM {key.relation}) USING (episode_id))"
    )
    # prompts that groups share are counted, so by prompt a lone attempt is needed, too
    at_least = 2 if asked.match == Match.STATE else 1
    run(
        "CREATE OR REPLACE TEMP TABLE trajkit_attempt AS SELECT episode_id, gain, origin FROM trajkit_asked "
        "WHERE reason IS NULL AND origin IN (SELECT origin FROM trajkit_asked WHERE reason IS NULL "
        f"GROUP BY origin HAVING count(*) >= {at_least})"
    )
    run(
        "CREATE OR REPLACE TEMP TABLE trajkit_why AS SELECT episode_id, "
        "coalesce(reason, 'the only attempt') AS reason FROM trajkit_asked "
        "ANTI JOIN trajkit_attempt USING (episode_id)"
    )


def _demonstrated(derivation: Derivation, include_eval: bool) -> Found:
    """Find the steps with a demonstration that differs from the answer."""
    connection = derivation.connection
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE trajkit_why AS SELECT episode_id, CASE "
        f"WHEN purpose = 'eval' AND NOT {include_eval} THEN 'played for evaluation' "
        "ELSE 'no demonstration' END AS reason FROM episodes "
        f"WHERE (purpose = 'eval' AND NOT {include_eval}) OR episode_id NOT IN "
        "(SELECT episode_id FROM steps WHERE nullif(CAST(demonstration AS VARCHAR), 'null') IS NOT NULL)"
    )
    connection.execute(
        f"SELECT episode_id, step_index, CAST(demonstration AS VARCHAR), CAST({OWN_ANSWER} AS VARCHAR) "
        "FROM steps ANTI JOIN trajkit_why USING (episode_id) "
        "WHERE nullif(CAST(demonstration AS VARCHAR), 'null') IS NOT NULL "
        f"AND {IS_LEARNED} AND messages IS NOT NULL ORDER BY episode_id, step_index"
    )
    picked = []
    n_same = 0
    while rows := connection.fetchmany(1000):
        for episode_id, step_index, demonstration, completion in rows:
            if says_the_same(demonstrated(demonstration), Message.model_validate_json(completion)):
                n_same += 1
                continue
            side = Side("", "", episode_id, step_index, 0.0)
            picked.append(Picked(side, side))
    notes = [f"{n_same:,} demonstrations equal the answer: no pair"] if n_same else []
    return Found(picked, None, notes)
