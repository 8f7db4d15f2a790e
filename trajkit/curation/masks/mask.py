"""Keep steps as context without learning them, for requested reasons, each of them counted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.division import own_folder
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.weights.weighing import ZERO, add_up
from trajkit.engines.engine import Engine
from trajkit.environments.guard import RETURN_NAME
from trajkit.errors import NothingMatched, QueryError, RequestError
from trajkit.schema import Left, LineageEntry, Manifest, MetricLevel
from trajkit.schema.base import Count, JsonObject, Model, Name
from trajkit.schema.success import Success, parse_success
from trajkit.store.engine import file_literal, literal
from trajkit.store.layout import quoted


class MaskReason(StrEnum):
    """Why a step is not learned. A step with several reasons is counted under the first of them."""

    COPIED = "copied"
    """It was copied from another episode as context: its source says so (`is_copied_context`), or the same
    inference is in an episode that began earlier."""
    AFTER_SUCCESS = "after-success"
    """Success was certain before the step: an earlier step of a successful episode is terminated, or the rule
    given with `success` held from an earlier step to the end."""
    TRUNCATED = "truncated"
    """The token limit cut off the answer (`finish_reason`)."""
    UNPARSED = "unparsed"
    """No action could be read from the answer, so the environment executed its default."""
    INVALID = "invalid"
    """The answer names an action that the environment does not have."""
    NO_OP = "no-op"
    """The step changed no observation and earned no reward: the observation after it equals the one before.
    Tool calls that no environment executed are not judged, nor are steps after which another agent acts."""
    LOOP = "loop"
    """The same action was executed earlier in the episode at the same observation."""
    CACHED = "cached"
    """The answer came from the gateway's cache, and another learned step has the same prompt and answer.
    Judged last, among the remaining steps."""


REASON_TEXTS = {
    MaskReason.COPIED: "copied context",
    MaskReason.AFTER_SUCCESS: "after success",
    MaskReason.TRUNCATED: "truncated answer",
    MaskReason.UNPARSED: "answer not parsed",
    MaskReason.INVALID: "invalid action",
    MaskReason.NO_OP: "no-op",
    MaskReason.LOOP: "loop",
    MaskReason.CACHED: "cached duplicate",
}
"""The text in `mask_reason`."""
_OTHER = "another function"

# Below, for each reason whether it holds, as SQL: true, false, or null if unknown.

_CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Finish reasons of services for an answer that reached the token limit."""

# An agent may call models several times before it acts: those calls have no action of their own.
_ACTION = "coalesce(action_executed, nullif(CAST(action AS VARCHAR), 'null'))"

# In a conversation an observation is the latest result, not the state of a world: two calls may return the
# same result. And another agent that continues, such as a called one, has its own observations.
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
_COPIES = """
    CREATE OR REPLACE TEMP TABLE trajkit_copy AS
    SELECT episode_id, step_index FROM (
        SELECT s.episode_id, step_index, inference_id, row_number() OVER (
            PARTITION BY inference_id ORDER BY e.started_at NULLS LAST, s.episode_id, step_index) AS place
        FROM steps s JOIN episodes e USING (episode_id) WHERE {where} AND inference_id IS NOT NULL
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


class MaskCount(Model):
    """Counts for one reason, over the steps that were learned before or had only the weight 0."""

    reason: Name
    """As on the command line."""
    n_masked: Count
    """Steps that are no longer learned for this reason, and for no earlier one in the order."""
    n_matched: Count
    """Steps for which the reason holds, whether or not others do."""
    n_unjudged: Count
    """Steps that lack a value the reason needs, such as an observation. They stay."""


class MaskReport(Model):
    """Counts of masked and learned steps."""

    reasons: tuple[MaskCount, ...]
    """By reason, in the order of `MaskReason`."""
    n_masked_before: Count
    """Steps that were already not learned. They keep their reason, unless it was only the weight 0."""
    n_learned_before: Count
    """Steps that were learned."""
    n_learned: Count
    """Steps that are still learned."""
    n_tokens_before: Count | None
    """Tokens of the answers that were learned; None if one is unknown."""
    n_tokens: Count | None
    """Tokens of the answers that are still learned; None if one is unknown."""


class Masked(NamedTuple):
    """The new store, its lineage entry and the counts."""

    manifest: Manifest | None
    """None if no store was written."""
    entry: LineageEntry
    report: MaskReport


def mask(
    path: str | Path,
    goal: Path | None,
    *,
    reasons: Sequence[MaskReason | str],
    success: str | None = None,
    engine: Engine | None = None,
) -> Masked:
    """Write a store in which some steps are context only: `loss_weight` 0, with a `mask_reason`.

    The answer stays where it is, so that later steps keep their prompts. A step that is already not learned
    keeps its reason, unless that is only the weight 0, which another weighting could undo.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write; None only counts.
        reasons: The reasons to check, of `MaskReason`. Their order does not matter.
        success: For `after-success`: the condition for certain success, such as `episode_return >= 1` (the
            rewards so far) or a metric of steps, `progression >= 1`. None uses `terminated` alone.
        engine: Writes the new store; None for this process.

    Raises:
        RequestError: No reason is given, or an unknown one; `success` without `after-success`.
        QueryError: `success` is not a rule, or names a column that steps do not have.
        NothingMatched: No step would still be learned.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    chosen = _chosen(reasons, success)
    arguments: JsonObject = {"reason": [reason.value for reason in chosen], "success": success}
    with deriving(path, engine=engine, goal=goal) as derivation:
        _judge(derivation, chosen, success)
        report = _report(derivation, chosen)
        masked = [
            Left(reason=REASON_TEXTS[MaskReason(each.reason)], n_steps=each.n_masked)
            for each in report.reasons
        ]
        entry = derivation.entry(verb="mask", arguments=arguments, masked=masked)
        if goal is None:
            return Masked(None, entry, report)
        if not report.n_learned:
            counts = ", ".join(f"{each.n_masked:,} {each.reason}" for each in report.reasons)
            raise NothingMatched(
                f"mask leaves no step of {derivation.store.path} to learn",
                hint=f"{counts}; {report.n_masked_before:,} were not learned before",
            )
        manifest = derivation.write(
            goal, verb="mask", arguments=arguments, steps=_masked_steps(derivation, chosen), masked=masked
        )
        return Masked(manifest, manifest.lineage[-1], report)


def _chosen(reasons: Sequence[MaskReason | str], success: str | None) -> list[MaskReason]:
    known = [reason.value for reason in MaskReason]
    for reason in reasons:
        if reason not in known:
            raise RequestError(f"unknown reason {str(reason)!r}", hint=f"reasons: {', '.join(known)}")
    if not reasons:
        raise RequestError("no reason to mask steps is given", hint=f"of {', '.join(known)}")
    if success is not None and MaskReason.AFTER_SUCCESS not in reasons:
        raise RequestError("--success needs --reason after-success")
    return [reason for reason in MaskReason if reason in reasons]


def _judge(derivation: Derivation, reasons: Sequence[MaskReason], success: str | None) -> None:
    """Create a table `trajkit_judged` of the steps that are learned, or that have only the weight 0.

    A new weighting could make the latter learned again. `found` has for each reason whether it holds, null
    where it is unknown; `position` is that of the first reason that holds, from 1.
    """
    derivation.refuse_repeated_steps()
    run = derivation.connection.execute
    needs_acting = bool({MaskReason.NO_OP, MaskReason.LOOP} & set(reasons))
    acting = _ACTING.format(where=needs_acting and derivation.engine is None)
    run(f"CREATE OR REPLACE TEMP TABLE trajkit_acting AS {acting}")
    if needs_acting and derivation.engine is not None:
        for path in derivation.over(write_acting, {}, what="observations"):
            run(f"INSERT INTO trajkit_acting SELECT * FROM read_parquet({file_literal(path)})")
    run(_COPIES.format(where=MaskReason.COPIED in reasons))
    is_asked = MaskReason.AFTER_SUCCESS in reasons
    run(_CERTAIN.format(ways=_ways(derivation, success) if is_asked else f"{_ENDED} AND false"))
    run(_JUDGED.format(found=", ".join(_FOUND[reason] for reason in reasons), zero=ZERO))
    if MaskReason.CACHED in reasons:
        run(_TWINS)
        run(_WITH_TWINS)


def write_acting(item: dict[str, Any]) -> str:
    """Write the steps of a span of the episodes that acted; return the name of the file."""
    path = own_folder(Path(item["folder"]), "acting") / "acting.parquet"
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        rows = _ACTING.format(where=item["where"])
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


def _report(derivation: Derivation, chosen: Sequence[MaskReason]) -> MaskReport:
    connection = derivation.connection
    columns = ", ".join(
        f"count(*) FILTER (WHERE position = {place}), "
        f"count(*) FILTER (WHERE found[{place}]), count(*) FILTER (WHERE found[{place}] IS NULL)"
        for place in range(1, len(chosen) + 1)
    )
    (counted,) = connection.execute(f"SELECT {columns} FROM trajkit_judged").fetchall()
    (rest,) = connection.execute(
        """
        SELECT count(*) FILTER (WHERE NOT was), count(*) FILTER (WHERE was), count(*) FILTER (WHERE stays),
            CASE WHEN count(*) FILTER (WHERE was AND n IS NULL) = 0
                THEN coalesce(sum(n) FILTER (WHERE was), 0) END,
            CASE WHEN count(*) FILTER (WHERE stays AND n IS NULL) = 0
                THEN coalesce(sum(n) FILTER (WHERE stays), 0) END
        FROM (SELECT n_output_tokens AS n, coalesce(is_learned, false) AS was,
                     coalesce(is_learned, false) AND position IS NULL AS stays
              FROM steps LEFT JOIN trajkit_judged USING (episode_id, step_index))
        """
    ).fetchall()
    n_masked_before, n_learned_before, n_learned, n_tokens_before, n_tokens = rest
    return MaskReport(
        reasons=tuple(
            MaskCount(
                reason=reason.value,
                n_masked=counted[3 * place],
                n_matched=counted[3 * place + 1],
                n_unjudged=counted[3 * place + 2],
            )
            for place, reason in enumerate(chosen)
        ),
        n_masked_before=n_masked_before,
        n_learned_before=n_learned_before,
        n_learned=n_learned,
        n_tokens_before=n_tokens_before,
        n_tokens=n_tokens,
    )


def _masked_steps(derivation: Derivation, chosen: Sequence[MaskReason]) -> str:
    """Create a view of the steps with their new masks."""
    texts = ", ".join(literal(REASON_TEXTS[reason]) for reason in chosen)
    derivation.connection.execute(
        "CREATE OR REPLACE TEMP TABLE trajkit_masked AS SELECT episode_id, step_index, "
        f"[{texts}][position] AS mask_text FROM trajkit_judged WHERE position IS NOT NULL"
    )
    derivation.connection.execute(
        "CREATE OR REPLACE TEMP VIEW trajkit_masked_steps AS SELECT s.* REPLACE ("
        "CASE WHEN mask_text IS NULL THEN s.loss_weight ELSE 0 END AS loss_weight, "
        "coalesce(mask_text, s.mask_reason) AS mask_reason) "
        "FROM steps s LEFT JOIN trajkit_masked USING (episode_id, step_index)"
    )
    return "trajkit_masked_steps"


def only_function(path: str | Path, goal: Path, function: str) -> LineageEntry:
    """Write a store in which only the steps of one function are learned.

    The others stay where they are, with `loss_weight` 0 and a `mask_reason`: later steps keep their prompts.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write.
        function: The function whose steps are learned.

    Raises:
        RequestError: No step is of this function; the hint lists the store's functions.
        NothingMatched: No step of this function is learned.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    with deriving(path) as derivation:
        connection = derivation.connection
        ((names,),) = connection.execute(
            "SELECT list_sort(list(DISTINCT function_name)) FROM steps"
        ).fetchall()
        known = [name for name in names or () if name is not None]
        if function not in known:
            raise RequestError(
                f"no step of {derivation.store.path} is of the function {function!r}",
                hint=f"functions: {', '.join(known) or 'none'}",
            )
        other = f"coalesce(function_name, '') <> {literal(function)}"
        ((n_masked, n_learned),) = connection.execute(
            f"SELECT count(*) FILTER (WHERE {other}), count(*) FILTER (WHERE NOT {other})"
            " FROM steps WHERE loss_weight > 0"
        ).fetchall()
        if not n_learned:
            raise NothingMatched(
                f"no step of {function!r} in {derivation.store.path} is learned",
                hint="`trajkit stats` shows the weights of the steps",
            )
        connection.execute(
            "CREATE OR REPLACE TEMP VIEW trajkit_function_steps AS SELECT * REPLACE ("
            f"CASE WHEN {other} THEN 0 ELSE loss_weight END AS loss_weight, "
            f"CASE WHEN {other} THEN coalesce(mask_reason, {literal(_OTHER)}) ELSE mask_reason END"
            " AS mask_reason) FROM steps"
        )
        manifest = derivation.write(
            goal,
            verb="mask",
            arguments={"function": function},
            steps="trajkit_function_steps",
            masked=[Left(reason=_OTHER, n_steps=n_masked)],
        )
        return manifest.lineage[-1]
