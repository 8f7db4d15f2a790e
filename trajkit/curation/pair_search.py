"""The pairs that a store holds, and why the other episodes are in none."""

from __future__ import annotations

from typing import NamedTuple

from trajkit.curation.derive import Derivation
from trajkit.curation.groups import Score, score_of
from trajkit.curation.keys import Key
from trajkit.curation.pair_request import Level, Match, PairOptions
from trajkit.curation.pair_rows import OWN_ANSWER, demonstrated, says_the_same
from trajkit.curation.pairing import IS_LEARNED, Picked, Side, n_prompts_apart, of_prompts, of_states, pick
from trajkit.curation.witness import Witness
from trajkit.schema import Message


class Found(NamedTuple):
    """What a store holds."""

    pairs: list[Picked]
    """In an order that follows from what they are."""
    score: Score | None
    """What they were compared by."""
    notes: list[str]
    """What a reader should know."""


def search(derivation: Derivation, asked: PairOptions, key: Key, witness: Witness | None) -> Found:
    """Find the pairs, and leave a table `trajkit_why` of the episodes that cannot be in one, with a `reason`.

    Args:
        derivation: The store.
        asked: What for.
        key: Keeps episodes together in a split.
        witness: Replays the episodes; None to take them as they are.

    Raises:
        QueryError: There is no such score.
        MissingExtra: The environment's package is not installed.
    """
    if asked.match == Match.DEMONSTRATION:
        return _demonstrated(derivation, asked.include_eval)
    score = score_of(derivation.store, derivation.connection, asked.score)
    _attempts(derivation, key, score, asked)
    notes = []
    is_episode = asked.level == Level.EPISODE
    if asked.match == Match.STATE:
        of_states(derivation, is_episode=is_episode, same_prompt=asked.same_prompt)
    else:
        of_prompts(derivation, is_episode=is_episode)
        if n_apart := n_prompts_apart(derivation):
            notes.append(
                f"{n_apart:,} prompts were answered unlike in several groups ({key.words}) and are paired "
                "only within one, as a split may part groups: `trajkit split` first, and pair a side of it"
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
        # they make room for other pairs, which may have sides that were not replayed yet
        derivation.connection.executemany(
            "INSERT INTO trajkit_why VALUES (?, 'replay differs')", [[each] for each in sorted(differing)]
        )
        derivation.connection.execute(
            "DELETE FROM trajkit_candidate WHERE episode_id IN (SELECT episode_id FROM trajkit_why)"
        )


def _why_none(derivation: Derivation, score: Score, asked: PairOptions) -> list[str]:
    """What kept the attempts that there are from being paired."""
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
        return [f"no two attempts part at one {asked.match}"]
    return [f"where they part, no two that say different things are {asked.margin:g} of {score.name} apart"]


def _attempts(derivation: Derivation, key: Key, score: Score, asked: PairOptions) -> None:
    """Leave `trajkit_attempt`, the episodes that may be paired, and `trajkit_why` for the others."""
    run = derivation.connection.execute
    sign = "-" if score.is_less_better else ""
    # within one side of a split every episode may meet every other
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
    # prompts that groups share are counted, so there a lone attempt is looked at too
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
    """The steps with a demonstration that says something else than the answer."""
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
    notes = [f"{n_same:,} demonstrations say what the answer says: no pair"] if n_same else []
    return Found(picked, None, notes)
