"""Decide for each reason to mask a step whether it holds, as SQL: true, false, or null if unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajkit._core.division import own_folder
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.weights.rewards import add_up
from trajkit.curation.weights.weighing import ZERO
from trajkit.environments.guard import RETURN_NAME
from trajkit.errors import QueryError
from trajkit.schema import MetricLevel
from trajkit.schema.success import Success, parse_success
from trajkit.store.engine import file_literal, literal
from trajkit.store.layout import quoted

_CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Finish reasons of services for an answer that reached the token limit."""

# An agent may ask models several times before it acts once: those calls have no action of their own.
_ACTION = "coalesce(action_executed, nullif(CAST(action AS VARCHAR), 'null'))"

# In a conversation an observation is the latest result, not the state of a world: two calls may return the
# same result. And where another agent goes on, as one that was called, it has observations of its own.
_IS_TALK = "action_executed IS NULL AND json_type(action) = 'ARRAY'"

_ACTING = f"""
    SELECT episode_id, step_index, seen IS NOT NULL AS is_seen,
        CASE WHEN coalesce(reward, 0) > 0 THEN false
            WHEN NOT is_talk AND agent_name IS NOT DISTINCT FROM lead(agent_name) OVER later
                THEN seen = lead(seen) OVER later END AS is_no_op,
        CASE WHEN seen IS NOT NULL THEN
            row_number() OVER (PARTITION BY episode_id, seen, done ORDER BY step_index) > 1 END AS is_loop
    FROM (
        -- hashes sort in less memory than long texts
        SELECT episode_id, step_index, reward, agent_name, {_IS_TALK} AS is_talk,
            md5_number(observation) AS seen, md5_number({_ACTION}) AS done
        FROM steps WHERE {_ACTION} IS NOT NULL AND {{where}}
    ) WINDOW later AS (PARTITION BY episode_id ORDER BY step_index)
"""
_NO_ACTING = """
    CREATE OR REPLACE TEMP TABLE trajkit_acting
    (episode_id VARCHAR, step_index BIGINT, is_seen BOOLEAN, is_no_op BOOLEAN, is_loop BOOLEAN)
"""
_NO_COPIES = "CREATE OR REPLACE TEMP TABLE trajkit_copy (episode_id VARCHAR, step_index BIGINT)"
_NEVER = "SELECT NULL::VARCHAR AS episode_id, NULL::BIGINT AS step_index WHERE false"
_COPIES = """
    CREATE OR REPLACE TEMP TABLE trajkit_copy AS
    SELECT episode_id, step_index FROM (
        SELECT s.episode_id, step_index, inference_id, row_number() OVER (
            PARTITION BY inference_id ORDER BY e.started_at NULLS LAST, s.episode_id, step_index) AS place
        FROM steps s JOIN episodes e USING (episode_id) WHERE inference_id IS NOT NULL
    ) WHERE place > 1
"""
_CERTAIN = """
    CREATE OR REPLACE TEMP TABLE trajkit_certain AS
    SELECT episode_id, min(step_index) AS step_index FROM ({ways}) GROUP BY episode_id
"""
_ENDED = """
    SELECT episode_id, step_index FROM steps
    SEMI JOIN (SELECT episode_id FROM episodes WHERE outcome = 'success') USING (episode_id) WHERE terminated
"""
# The rule held to the end after the last step at which it did not hold.
_HELD = """
    SELECT episode_id, step_index FROM (
        SELECT *, coalesce(max(step_index) FILTER (WHERE NOT holds) OVER (PARTITION BY episode_id), -1)
            AS last_broken
        FROM (SELECT episode_id, step_index, value {operator} {value!r} AS holds FROM ({values})
              WHERE value IS NOT NULL)
    ) WHERE step_index > last_broken
"""

_FOUND = {
    "copied": "CASE WHEN c.episode_id IS NOT NULL THEN true "
    "WHEN json_type(s.extra, '$.is_copied_context') = 'BOOLEAN' "
    "THEN CAST(s.extra->>'$.is_copied_context' AS BOOLEAN) "
    "WHEN s.inference_id IS NOT NULL THEN false END",
    "after-success": "coalesce(s.step_index > u.step_index, false)",
    "truncated": f"lower(s.finish_reason) IN {_CUT_OFF!r}",
    "unparsed": "CASE WHEN s.completion IS NULL OR CAST(s.completion AS VARCHAR) = 'null' THEN false "
    "WHEN s.action IS NOT NULL AND CAST(s.action AS VARCHAR) <> 'null' THEN false "
    "WHEN s.action_executed IS NOT NULL THEN true END",
    "invalid": "NOT s.action_valid",
    "no-op": "a.is_no_op",
    "loop": "a.is_loop",
    "cached": "CASE WHEN NOT s.cached THEN false END",  # _WITH_TWINS sets true among the remaining steps
}

_JUDGED = """
    CREATE OR REPLACE TEMP TABLE trajkit_judged AS
    SELECT *, list_position(found, true) AS position FROM (
        SELECT s.episode_id, s.step_index, s.loss_weight <> 0 AS is_learned, [{found}] AS found
        FROM steps s
        LEFT JOIN trajkit_acting a USING (episode_id, step_index)
        LEFT JOIN trajkit_copy c USING (episode_id, step_index)
        LEFT JOIN trajkit_certain u ON u.episode_id = s.episode_id
        WHERE s.loss_weight <> 0 OR s.mask_reason = '{zero}'
    )
"""

# Of the steps with the same prompt and answer one stays: the first that is not cached, else the first.
_TWINS = """
    CREATE OR REPLACE TEMP TABLE trajkit_twin AS
    WITH cached AS (
        SELECT DISTINCT md5_number(CAST(completion AS VARCHAR)) AS answer FROM steps
        WHERE cached AND loss_weight <> 0 AND completion IS NOT NULL
    ), alike AS (
        SELECT episode_id, step_index, coalesce(cached, false) AS is_cached,
            md5_number(CAST(completion AS VARCHAR)) AS answer,
            CASE WHEN prompt IS NOT NULL THEN md5_number(coalesce(function_name, '') || chr(0)
                || CAST(prompt AS VARCHAR) || chr(0) || coalesce(CAST(tools AS VARCHAR), '')) END AS asked
        FROM steps_full
        WHERE loss_weight <> 0 AND md5_number(CAST(completion AS VARCHAR)) IN (SELECT answer FROM cached)
    )
    SELECT episode_id, step_index, is_cached, CASE
        WHEN j.position IS NOT NULL THEN false
        WHEN asked IS NOT NULL THEN row_number() OVER (
            PARTITION BY answer, asked, j.position IS NULL
            ORDER BY is_cached, e.started_at NULLS LAST, episode_id, step_index) > 1
        END AS is_twin
    FROM alike JOIN trajkit_judged j USING (episode_id, step_index) JOIN episodes e USING (episode_id)
"""
_WITH_TWINS = """
    CREATE OR REPLACE TEMP TABLE trajkit_judged AS
    SELECT *, list_position(found, true) AS position FROM (
        SELECT j.episode_id, j.step_index, j.is_learned,
            list_append(found[:-2], CASE WHEN t.is_cached THEN t.is_twin ELSE found[-1] END) AS found
        FROM trajkit_judged j LEFT JOIN trajkit_twin t USING (episode_id, step_index)
    )
"""


def judge(derivation: Derivation, reasons: Sequence[str], success: str | None) -> None:
    """Create a table `trajkit_judged` of the steps that are learned, or that have only the weight 0.

    A new weighting could make the latter learned again. Columns: `episode_id`, `step_index`, `is_learned`,
    `found` (for each reason whether it holds; null where it is unknown) and `position` (the position of the
    first reason that holds, from 1).

    Args:
        derivation: The store.
        reasons: Names of reasons, in the order in which they are resolved.
        success: The condition for certain success; None to use `terminated` alone.

    Raises:
        QueryError: `success` is not a rule, or names a column that steps do not have.
        StoreError: A step occurs more than once.
    """
    derivation.refuse_repeated_steps()
    run = derivation.connection.execute
    run(_NO_ACTING)
    if {"no-op", "loop"} & set(reasons):
        _act(derivation)
    run(_COPIES if "copied" in reasons else _NO_COPIES)
    run(_CERTAIN.format(ways=_ways(derivation, success) if "after-success" in reasons else _NEVER))
    run(_JUDGED.format(found=", ".join(_FOUND[reason] for reason in reasons), zero=ZERO))
    if "cached" in reasons:
        run(_TWINS)
        run(_WITH_TWINS)


def _act(derivation: Derivation) -> None:
    """Fill the table of steps that acted, in this process or by the engine."""
    run = derivation.connection.execute
    if derivation.engine is None:
        run(f"INSERT INTO trajkit_acting {_ACTING.format(where='true')}")
        return
    for path in derivation.over(write_acting, {}, what="observations"):
        run(f"INSERT INTO trajkit_acting SELECT * FROM read_parquet({file_literal(path)})")


def write_acting(item: dict[str, Any]) -> str:
    """Write the steps of a span of the episodes that acted; return the name of the file."""
    path = own_folder(Path(item["folder"]), "acting") / "acting.parquet"
    between = f"episode_id BETWEEN {literal(item['lowest'])} AND {literal(item['highest'])}"
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        rows = _ACTING.format(where=between)
        derivation.connection.execute(f"COPY ({rows}) TO {literal(str(path))} (FORMAT parquet)")
    return f"{path.parent.name}/{path.name}"


def _ways(derivation: Derivation, success: str | None) -> str:
    """Return SQL of the steps from which on success was certain."""
    if success is None:
        return _ENDED
    rule = parse_success(success)
    values = _measured(derivation, rule)
    return f"{_ENDED} UNION ALL {_HELD.format(operator=rule.operator, value=rule.value, values=values)}"


def _measured(derivation: Derivation, rule: Success) -> str:
    """Return SQL of the metric of the rule at each step."""
    of_steps = [m.name for m in derivation.store.manifest.metrics if m.level == MetricLevel.INFERENCE]
    if rule.metric in of_steps:
        value = f"CAST(metrics.{quoted(rule.metric)} AS DOUBLE)"
        return f"SELECT episode_id, step_index, {value} AS value FROM steps"
    if rule.metric == RETURN_NAME:
        add_up(derivation, "trajkit_so_far")
        return "SELECT * FROM trajkit_so_far"
    raise QueryError(
        f"--success names {rule.metric!r}, which is not measured step by step in {derivation.store.path}",
        hint=f"measured on steps: {', '.join(sorted([*of_steps, RETURN_NAME]))} (the rewards so far)",
    )
