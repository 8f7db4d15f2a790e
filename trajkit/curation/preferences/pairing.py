"""Find preference pairs: two continuations of one state that differ and end with different scores.

A candidate is a step at which a side may begin. Its `state` hashes what both sides of a pair share, `choice`
the action or answer, `said` the learned answers. `gain` is the score of the episode.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.curation.derive import Derivation
from trajkit.store.view import spans

# A database may store scores with 32 bits: then 0.9 - 0.8 is slightly less than 0.1.
_SLACK = 2e-7
_ROWS_AT_ONCE = 10_000

_BLOCKS = "CAST(completion->'$.content' AS JSON[])"
SAID = f"""
    md5(array_to_string(list_transform(
        list_filter({_BLOCKS}, lambda b: b->>'$.type' <> 'thought'), lambda b: CASE b->>'$.type'
            WHEN 'text' THEN 'text' || chr(0) || (b->>'$.text')
            WHEN 'tool_call' THEN 'call' || chr(0) || (b->>'$.name') || chr(0) || (b->>'$.arguments')
            ELSE CAST(b AS VARCHAR) END), chr(1)))
"""
"""Hash of an answer without thoughts and the random ids of tool calls; null if there is no answer."""

IS_LEARNED = "loss_weight <> 0 AND completion IS NOT NULL AND CAST(completion AS VARCHAR) <> 'null'"
_ACTION = "coalesce(action_executed, nullif(CAST(action AS VARCHAR), 'null'))"
_STEPS = f"""
    SELECT s.episode_id, s.step_index, e.origin, md5(observation) AS seen, md5({_ACTION}) AS done,
        CASE WHEN {IS_LEARNED} THEN {SAID} END AS said, messages IS NOT NULL AS has_prompt, e.gain
    FROM steps s JOIN trajkit_attempt e USING (episode_id)
    WHERE {{span}} ORDER BY s.episode_id, s.step_index
"""
_HASHES = """
    SELECT episode_id, step_index, n_prompt_kept,
        list_transform(CAST(messages AS JSON[]), lambda m: md5(CAST(m AS VARCHAR))),
        md5(CAST(completion AS VARCHAR)), md5(coalesce(CAST(tools AS VARCHAR), ''))
    FROM steps WHERE {span} ORDER BY episode_id, step_index
"""
_CANDIDATES = """
    CREATE OR REPLACE TEMP TABLE trajkit_candidate
    (state UUID, choice UUID, said UUID, episode_id VARCHAR, step_index BIGINT, gain DOUBLE{more})
"""
"""A hash is a UUID: 16 bytes instead of 32 or 64 hex digits."""
_NAMES = ("state", "choice", "said", "episode_id", "step_index", "gain")
_KINDS: list[pa.DataType] = [*[pa.string()] * 4, pa.int64(), pa.float64()]
_SCHEMA = pa.schema(list(zip(_NAMES, _KINDS, strict=True)))


class Side(NamedTuple):
    """Where a continuation begins, as a row of `trajkit_candidate` without `state`."""

    choice: str
    said: str
    episode_id: str
    step_index: int
    gain: float


class Picked(NamedTuple):
    """Two continuations, the better one first."""

    chosen: Side
    rejected: Side


def find_candidates(
    derivation: Derivation, *, by_state: bool, is_episode: bool, same_prompt: bool = False
) -> None:
    """Create candidates that share the prompt and tools, or a start and all observations and actions since.

    The state contains the earlier actions: two episodes with the same state and different actions diverge
    there for the first time.

    Args:
        derivation: The store, with a table `trajkit_attempt` of `episode_id`, `gain` and `origin`, which two
            attempts must share to be paired.
        by_state: Whether they share what was observed and done.
        is_episode: Whether a side is everything learned from there on, instead of one answer.
        same_prompt: Whether sides by state must also share the prompt and tools.
    """
    _walk_all(derivation, is_episode=is_episode, by_action=by_state)
    if not by_state:
        _with_prompts(derivation, state="md5(asked || origin)", choice=SAID)
    elif same_prompt:
        _with_prompts(derivation, state="md5(asked || CAST(c.state AS VARCHAR))", choice="c.choice")


def _with_prompts(derivation: Derivation, *, state: str, choice: str) -> None:
    """Add the hash of the prompt and tools to the candidates."""
    run = derivation.connection.execute
    run("ALTER TABLE trajkit_candidate RENAME TO trajkit_unhashed")
    run(_CANDIDATES.format(more=", asked UUID, origin VARCHAR"))
    for span in spans(derivation.connection, derivation.store):
        derivation.connection.register("trajkit_found", _hash_prompts(derivation, span))
        run(
            f"""
            INSERT INTO trajkit_candidate
            SELECT {state}, {choice}, c.said, episode_id, step_index, e.gain, asked, e.origin
            FROM trajkit_found JOIN (SELECT episode_id, step_index, completion FROM steps WHERE {span})
                USING (episode_id, step_index)
            JOIN trajkit_attempt e USING (episode_id) JOIN trajkit_unhashed c USING (episode_id, step_index)
            """
        )
        derivation.connection.unregister("trajkit_found")
    run("DROP TABLE trajkit_unhashed")


def _hash_prompts(derivation: Derivation, span: str) -> pa.Table:
    """Hash the prompt and tools of each step, from the hashes of its messages because prompts are long.

    A prompt is its kept part of the previous prompt and answer, and the messages of the step.
    """
    derivation.connection.execute(_HASHES.format(span=span))
    found: dict[str, list[Any]] = {"episode_id": [], "step_index": [], "asked": []}
    before: list[str] = []
    while rows := derivation.connection.fetchmany(_ROWS_AT_ONCE):
        for episode_id, step_index, n_kept, messages, answer, tools in rows:
            prompt = before[:n_kept] + (messages or [])
            before = prompt if answer is None else [*prompt, answer]
            if n_kept or messages is not None:
                asked = hashlib.md5("".join([*prompt, tools]).encode(), usedforsecurity=False).hexdigest()
                for name, value in zip(found, (episode_id, step_index, asked), strict=True):
                    found[name].append(value)
    columns: dict[str, pa.DataType] = {
        "episode_id": pa.string(),
        "step_index": pa.int64(),
        "asked": pa.string(),
    }
    return pa.table(found, pa.schema(columns))


def n_prompts_apart(derivation: Derivation) -> int:
    """Count prompts with different answers in several groups; they are not paired across groups."""
    ((number,),) = derivation.connection.execute(
        "SELECT count(*) FROM (SELECT asked FROM trajkit_candidate GROUP BY asked "
        "HAVING min(origin) <> max(origin) AND min(choice) <> max(choice))"
    ).fetchall()
    return int(number)


def pick(derivation: Derivation, *, margin: float, per_state: int) -> list[Picked]:
    """Return the pairs of all states, in an order that depends only on the pairs.

    Args:
        derivation: Has the table `trajkit_candidate`.
        margin: Minimum difference of the gains of both episodes.
        per_state: Maximum pairs per state: those with the largest margins.
    """
    # as texts, which are much faster in Python, but sorted before
    derivation.connection.execute(
        "SELECT CAST(state AS VARCHAR), CAST(choice AS VARCHAR), CAST(said AS VARCHAR), episode_id, "
        "step_index, gain FROM (SELECT * FROM trajkit_candidate SEMI JOIN (SELECT state FROM "
        "trajkit_candidate GROUP BY state HAVING min(choice) <> max(choice) AND max(gain) > min(gain)) "
        "USING (state) ORDER BY state, gain DESC, episode_id, step_index)"
    )
    rows = itertools.chain.from_iterable(
        iter(lambda: derivation.connection.fetchmany(_ROWS_AT_ONCE), [])  # only few rows share a state
    )
    picked = [
        pair
        for _, sides in itertools.groupby(rows, key=lambda row: row[0])
        for pair in best_pairs([Side(*side[1:]) for side in sides], margin=margin, most=per_state)
    ]
    return sorted(picked, key=lambda pair: (pair.chosen[2:4], pair.rejected[2:4]))


def best_pairs(sides: Sequence[Side], *, margin: float, most: int) -> list[Picked]:
    """Return the pairs of one state with the largest margins, whose sides differ in choice and answer.

    Args:
        sides: The candidates of the state.
        margin: Minimum difference of the gains, above 0.
        most: Maximum number of pairs.
    """
    # of sides with the same choice and answer only the best can be chosen, and only the worst rejected
    best: dict[tuple[str, str], Side] = {}
    worst: dict[tuple[str, str], Side] = {}
    for side in sorted(sides, key=lambda side: (-side.gain, side.episode_id, side.step_index)):
        best.setdefault((side.choice, side.said), side)
    for side in sorted(sides, key=lambda side: (side.gain, side.episode_id, side.step_index)):
        worst.setdefault((side.choice, side.said), side)
    found: list[Picked] = []
    for pair in _by_margin(list(best.values()), list(worst.values()), margin):
        if len(found) == most:
            break
        if pair.chosen.choice != pair.rejected.choice and pair.chosen.said != pair.rejected.said:
            found.append(pair)
    return found


def _by_margin(best: Sequence[Side], worst: Sequence[Side], margin: float) -> Iterator[Picked]:
    """Yield pairs with the largest margins first, until the margin is too small."""
    waiting = [(worst[0].gain - best[0].gain, 0, 0)] if best and worst else []
    while waiting:
        _, i, j = heapq.heappop(waiting)
        chosen, rejected = best[i], worst[j]
        if not is_apart(chosen.gain, rejected.gain, margin):
            return
        yield Picked(chosen, rejected)
        if j + 1 < len(worst):
            heapq.heappush(waiting, (worst[j + 1].gain - chosen.gain, i, j + 1))
        if j == 0 and i + 1 < len(best):
            heapq.heappush(waiting, (worst[0].gain - best[i + 1].gain, i + 1, 0))


def is_apart(better: float, worse: float, margin: float) -> bool:
    """Whether one score is better by the margin, within the precision of scores."""
    return better > worse and better - worse >= margin - _SLACK * max(abs(better), abs(worse))


Row = tuple[str, int, str, str | None, str | None, str | None, bool, float]


def _walk_all(derivation: Derivation, *, is_episode: bool, by_action: bool) -> None:
    run = derivation.connection.execute
    run(_CANDIDATES.format(more=""))
    for span in spans(derivation.connection, derivation.store):
        rows = run(_STEPS.format(span=span)).fetchall()
        found = [
            candidate
            for _, steps in itertools.groupby(rows, key=lambda row: row[0])
            for candidate in _walk(list(steps), is_episode, by_action)
        ]
        columns = zip(*found, strict=True) if found else [()] * len(_NAMES)
        table = pa.table(list(map(list, columns)), schema=_SCHEMA)
        derivation.connection.from_arrow(table).insert_into("trajkit_candidate")


def _walk(
    steps: Sequence[Row], is_episode: bool, by_action: bool
) -> Iterator[tuple[str, str | None, str, str, int, float]]:
    """Yield the candidates of an episode, one for each action or answer."""
    endings = _endings(steps) if is_episode else [step[5] for step in steps]
    state = hashlib.sha256(steps[0][2].encode()).digest()
    begin = 0
    for place, (episode_id, _, _, seen, done, _, _, gain) in enumerate(steps):
        if by_action and done is None:
            continue  # a model call before the action
        state = hashlib.sha256(state + (seen or "").encode()).digest()
        first = begin if is_episode else place
        said = endings[first]
        if said is not None and steps[first][6]:
            yield state.hex()[:32], done, said[:32], episode_id, steps[first][1], gain
        state = hashlib.sha256(state + (done or "").encode()).digest()
        begin = place + 1


def _endings(steps: Sequence[Row]) -> list[str | None]:
    """Return for each step a hash of everything learned from it on; None if nothing is."""
    endings: list[str | None] = []
    after: str | None = None
    for step in reversed(steps):
        if step[5] is not None:
            after = hashlib.sha256(f"{step[5]}{after}".encode()).hexdigest()
        endings.append(after)
    return endings[::-1]
