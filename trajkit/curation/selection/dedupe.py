"""Remove duplicates: leave out repeated episodes, and set the loss of repeated steps to 0.

A step cannot be removed from its episode, because later steps build on it: a duplicate stays as context, with
`loss_weight` 0. An episode is left out if it repeats another, or if all its learned steps are duplicates. Of
duplicates the first by id stays. Episodes that were played for evaluation are compared with each other only.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trajkit._core.files import building_both, refuse_existing, sha256_file
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.leaks.near import (
    EPISODE_KEYS,
    GROUPS,
    LEARNED,
    STEP_KEYS,
    Signing,
    find_near,
    make_episode_keys,
    make_step_keys,
)
from trajkit.engines.engine import Engine
from trajkit.errors import RequestError
from trajkit.schema import Left, LineageEntry, Manifest
from trajkit.schema.base import JsonObject
from trajkit.store.engine import MEMORY_LIMIT, literal, writing

SAME_EPISODE = "the same actions from the same start as another"
NOTHING_NEW = "nothing is learned but duplicates"
SAME_STEP = "duplicate: same prompt and answer"
NEAR_STEP = "near duplicate: like prompt, same action"

_DROPPED = "trajkit_dropped"
_KEPT = "trajkit_deduped"
_KINDS = {"exact": SAME_STEP, "near": NEAR_STEP}


def dedupe(
    path: str | Path,
    goal: Path | None,
    *,
    exact: bool = False,
    episodes: bool = False,
    near: float | None = None,
    shingle: int = 5,
    memory_limit: str = MEMORY_LIMIT,
    threads: int | None = None,
    engine: Engine | None = None,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
) -> tuple[Manifest | None, LineageEntry]:
    """Write a store in which no learned step repeats another.

    Beside the store, `GOAL.duplicates.parquet` names for every dropped row the kept row of its group:
    the columns `kind`, `episode_id`, `step_index` (null for a whole episode), `kept_episode_id`,
    `kept_step_index` and `similarity` (of near duplicates, estimated). The lineage names the file and its
    sha256.

    Args:
        path: The store.
        goal: The folder to write; None only counts.
        exact: Compare steps by prompt and answer (`trajkit.curation.leaks.near` defines equality).
        episodes: Compare episodes by their actions and their start.
        near: Compare steps with the same action by the similarity of their prompts: at least this share, from
            above 0 to 1 (`trajkit.curation.leaks.near`). The answer replaces an unknown action.
        shingle: Words of an n-gram by which near prompts are compared.
        memory_limit: Memory limit of DuckDB, which spills to disk above it.
        threads: Threads of DuckDB; None for one per core.
        engine: Writes the new store; None for this process.
        on_progress: Gets how many steps were read, and how many there are; not with `episodes` alone.

    Returns:
        The manifest of the new store, None without a goal; and the lineage entry. The comparisons run in the
        order episodes, exact, near.

    Raises:
        RequestError: No comparison was chosen, or a number is out of range.
        MissingExtra: rensa is not installed, which `near` needs.
        StoreError: `goal` or the file beside it exists or cannot be written, or the store cannot be read.
    """
    _check(exact=exact, episodes=episodes, near=near, shingle=shingle)
    if goal is not None:
        refuse_existing(goal)
    arguments: JsonObject = {
        name: value for name, value in (("exact", exact), ("episodes", episodes), ("near", near)) if value
    }
    if near is not None:
        arguments["shingle"] = shingle
    with deriving(path, memory_limit=memory_limit, threads=threads, engine=engine, goal=goal) as derivation:
        if exact or near is not None:
            signing = None if near is None else Signing(derivation, threshold=near, shingle=shingle)
            make_step_keys(derivation, signing, on_progress)
        _find(derivation, exact=exact, episodes=episodes)
        if near is not None:
            _find_near(derivation, near)
        found = _not_compared(derivation) if exact or near is not None else {}
        left, masked = _leave(derivation), _masked(derivation)
        if goal is None:
            arguments |= {"result": found} if found else {}
            entry = derivation.entry(verb="dedupe", arguments=arguments, kept=_KEPT, left=left, masked=masked)
            return None, entry
        same_file = partial(filecmp.cmp, shallow=False)
        with building_both(goal, groups_path(goal), is_same=same_file) as folder:
            made = folder / goal.name
            arguments["result"] = found | _write_groups(derivation, groups_path(made))
            manifest = derivation.write(
                made, verb="dedupe", arguments=arguments, kept=_KEPT, steps=_steps(), left=left, masked=masked
            )
        return manifest, manifest.lineage[-1]


def groups_path(goal: Path) -> Path:
    """Return the path of the file beside a deduplicated store that lists the dropped rows."""
    return goal.with_name(f"{goal.name}.duplicates.parquet")


def _check(*, exact: bool, episodes: bool, near: float | None, shingle: int) -> None:
    if not exact and not episodes and near is None:
        raise RequestError("no comparison is chosen", hint="--exact, --episodes or --near 0.9 (near=0.9)")
    if near is not None and not 0 < near <= 1:
        raise RequestError(f"the similarity must be above 0 and at most 1, not {near:g}", hint="such as 0.9")
    if not 1 <= shingle <= 64:
        raise RequestError(f"a run must have 1 to 64 words, not {shingle}", hint="such as 5")


def _find(derivation: Derivation, *, exact: bool, episodes: bool) -> None:
    """Create the table of dropped rows, and fill it with exact duplicates."""
    run = derivation.connection.execute
    run(
        f"CREATE OR REPLACE TEMP TABLE {_DROPPED} (kind VARCHAR, episode_id VARCHAR, step_index BIGINT, "
        "kept_episode_id VARCHAR, kept_step_index BIGINT, similarity DOUBLE)"
    )
    if episodes:
        make_episode_keys(derivation)
        first = "first_value(episode_id) OVER (PARTITION BY is_eval, start, actions ORDER BY episode_id)"
        run(
            f"INSERT INTO {_DROPPED} SELECT 'episode', episode_id, NULL, kept, NULL, NULL FROM "
            f"(SELECT episode_id, {first} AS kept FROM {EPISODE_KEYS} "
            "WHERE start IS NOT NULL AND actions IS NOT NULL) WHERE episode_id <> kept"
        )
    if exact:
        _drop_steps(derivation, "exact", f"SELECT *, NULL AS similarity FROM {_rest()}", "prompt, answer")


def _find_near(derivation: Derivation, threshold: float) -> None:
    """Drop near duplicates among the remaining steps."""
    find_near(derivation, _rest(), threshold=threshold)
    alike = (
        "SELECT r.* REPLACE (coalesce(g.kept, r.prompt) AS prompt), "
        f"coalesce(g.similarity, 1.0) AS similarity FROM {_rest()} AS r LEFT JOIN {GROUPS} AS g "
        "ON g.prompt = r.prompt AND g.act = r.act AND g.is_eval = r.is_eval"
    )
    _drop_steps(derivation, "near", alike, "prompt, act")


def _rest() -> str:
    """Return SQL of the learned steps that have not been dropped."""
    return (
        f"(SELECT * FROM {STEP_KEYS} AS k WHERE {LEARNED} "
        f"AND NOT EXISTS (SELECT 1 FROM {_DROPPED} AS d WHERE d.episode_id = k.episode_id "
        "AND (d.step_index IS NULL OR d.step_index = k.step_index)))"
    )


def _drop_steps(derivation: Derivation, kind: str, rows: str, same: str) -> None:
    """Drop all but the first of the steps that are equal in the columns `same`."""
    window = f"OVER (PARTITION BY is_eval, {same} ORDER BY episode_id, step_index)"
    derivation.connection.execute(
        f"INSERT INTO {_DROPPED} SELECT {literal(kind)}, episode_id, step_index, first_episode, first_step, "
        f"similarity FROM (SELECT episode_id, step_index, similarity, row_number() {window} AS place, "
        f"first_value(episode_id) {window} AS first_episode, first_value(step_index) {window} AS first_step "
        f"FROM ({rows})) WHERE place > 1"
    )


def _not_compared(derivation: Derivation) -> JsonObject:
    """Count the learned steps that have no prompt or no answer to compare."""
    ((n,),) = derivation.connection.execute(
        f"SELECT count(*) FROM {STEP_KEYS} WHERE is_learned AND NOT ({LEARNED})"
    ).fetchall()
    return {"n_not_compared": n} if n else {}


def _leave(derivation: Derivation) -> list[Left]:
    """Create the table of the episodes that stay, and count the others by reason."""
    derivation.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {_KEPT} AS WITH emptied AS ("
        "SELECT episode_id FROM (SELECT episode_id, step_index FROM steps WHERE loss_weight > 0 "
        f"AND episode_id IN (SELECT episode_id FROM {_DROPPED})) AS s LEFT JOIN "
        f"(SELECT episode_id, step_index, kind FROM {_DROPPED} WHERE step_index IS NOT NULL) AS d "
        "USING (episode_id, step_index) GROUP BY episode_id HAVING count(*) = count(d.kind)) "
        "SELECT e.episode_id, e.n_steps, CASE WHEN r.episode_id IS NOT NULL THEN "
        f"{literal(SAME_EPISODE)} WHEN x.episode_id IS NOT NULL THEN {literal(NOTHING_NEW)} END AS reason "
        f"FROM episodes AS e LEFT JOIN (SELECT episode_id FROM {_DROPPED} WHERE step_index IS NULL) AS r "
        "ON r.episode_id = e.episode_id LEFT JOIN emptied AS x ON x.episode_id = e.episode_id"
    )
    rows = derivation.connection.execute(
        f"SELECT reason, count(*), CAST(sum(n_steps) AS BIGINT) FROM {_KEPT} WHERE reason IS NOT NULL "
        "GROUP BY reason ORDER BY reason"
    ).fetchall()
    derivation.connection.execute(f"DELETE FROM {_KEPT} WHERE reason IS NOT NULL")
    return [Left(reason=reason, n_episodes=n, n_steps=n_steps) for reason, n, n_steps in rows]


def _masked(derivation: Derivation) -> list[Left]:
    rows = derivation.connection.execute(
        f"SELECT kind, count(*) FROM {_DROPPED} WHERE step_index IS NOT NULL "
        f"AND episode_id IN (SELECT episode_id FROM {_KEPT}) GROUP BY kind ORDER BY kind"
    ).fetchall()
    return [Left(reason=_KINDS[kind], n_steps=n) for kind, n in rows]


def _steps() -> str:
    """Return SQL of the steps, where duplicates have no loss."""
    reason = " ".join(f"WHEN {literal(kind)} THEN {literal(text)}" for kind, text in _KINDS.items())
    return (
        "(SELECT s.* REPLACE (CASE WHEN d.kind IS NULL THEN s.loss_weight ELSE 0.0 END AS loss_weight, "
        f"CASE d.kind {reason} ELSE s.mask_reason END AS mask_reason) FROM steps AS s LEFT JOIN "
        f"(SELECT * FROM {_DROPPED} WHERE step_index IS NOT NULL) AS d "
        "ON d.episode_id = s.episode_id AND d.step_index = s.step_index)"
    )


def _write_groups(derivation: Derivation, path: Path) -> JsonObject:
    """Write the file of dropped rows."""
    with writing(path, derivation.connection):
        derivation.connection.execute(
            f"COPY (SELECT * FROM {_DROPPED} ORDER BY kind, episode_id, step_index) "
            f"TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)"
        )
    return {"groups": path.name, "groups_sha256": sha256_file(path)}
