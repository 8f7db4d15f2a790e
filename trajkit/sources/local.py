"""Read a local store as a source: the same conditions and tally as for a database, into a new store."""

from __future__ import annotations

from pathlib import Path

import duckdb

from trajkit._core.files import refuse_existing
from trajkit.errors import QueryError, RequestError
from trajkit.schema import FeedbackKind, Left, Manifest, Metric, MetricLevel
from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.schema.success import parse_success
from trajkit.sources.choose import (
    choose,
    find_levels,
    kept_counts,
    left_by_reason,
    list_steps,
    nothing_matched,
)
from trajkit.sources.question import NO_QUESTION, Question, read_question
from trajkit.sources.request import ExportRequest, Tally, lineage_entry, refuse_unknown
from trajkit.store.conditions.nameable import column_name
from trajkit.store.conditions.names import names_of
from trajkit.store.engine import connect, literal, scan
from trajkit.store.layout import TABLES, quoted
from trajkit.store.reader import Store, open_store, verify
from trajkit.store.writer import StoreWriter

_MEMORY_LIMIT = "1GB"
_READ = "a store already has its observations and actions"
_WRITTEN = "a store already has its prompts and answers"
_FOR_DATABASES = {
    "observation_path": _READ,
    "action_path": _READ,
    "template_variant": _WRITTEN,
    "targets": _WRITTEN,
    "as_of": "a store does not change",
    "max_bad": _WRITTEN,
    "shard": "a store is already in parts",
    "after": "a store does not change",
}

# Steps need not have an inference id: the key is the episode id, a NUL, which no id has, and the position,
# with leading zeros so that keys sort as the steps do.
_KEY = "episode_id || chr(0) || lpad(CAST(step_index AS VARCHAR), 20, '0')"
_KEY_OF_S = _KEY.replace("step_index", "s.step_index").replace("episode_id", "s.episode_id")


def export_store(
    path: str | Path, request: ExportRequest, goal: Path | None
) -> tuple[Tally, Manifest | None]:
    """Keep the episodes of a store that satisfy a request.

    Args:
        path: The store.
        request: Which episodes.
        goal: The store to write; None to count only.

    Returns:
        The tally, and the manifest of the new store (None when there is no goal).

    Raises:
        QueryError: The request names a metric, function or variant that the store does not have.
        NothingMatched: No episode is left.
        StoreError: The store is damaged, or the goal exists.
    """
    _refuse_reading_options(request)
    if goal is not None:
        refuse_existing(goal)
    store = open_store(path)
    verify(store)
    with connect(memory_limit=_MEMORY_LIMIT) as connection:
        for table in TABLES:
            connection.execute(
                f"CREATE VIEW {table} AS SELECT * EXCLUDE (filename) FROM {scan(store.parts(table))}"
            )
        _check_names(connection, request, store.manifest.metrics)
        _make_tables(connection, request, store.manifest.metrics)
        conditions = find_levels(
            connection, request, {metric.name: metric for metric in store.manifest.metrics}
        )
        question = _ask(connection, store, request)
        choose(connection, request, conditions, question)
        list_steps(connection)
        tally = _tally(connection, request)
        if tally.n_episodes_kept == 0:
            raise nothing_matched(connection, conditions, tally.left, question)
        return tally, None if goal is None else _write(connection, store, request, tally, goal)


def _refuse_reading_options(request: ExportRequest) -> None:
    """Refuse options for reading a database: a store is already read."""
    for name, why in _FOR_DATABASES.items():
        if getattr(request, name) != ExportRequest.model_fields[name].default:
            raise RequestError(f"--{name.replace('_', '-')} is for databases: {why}")


def _check_names(
    connection: duckdb.DuckDBPyConnection, request: ExportRequest, metrics: tuple[Metric, ...]
) -> None:
    known = {"metric": {metric.name for metric in metrics}}
    for what in ("function", "variant"):
        rows = connection.execute(
            f"SELECT DISTINCT {what}_name FROM steps WHERE {what}_name IS NOT NULL"
        ).fetchall()
        known[what] = {row[0] for row in rows}
    refuse_unknown("function", (*request.functions, *request.train_functions), known["function"], "store")
    refuse_unknown("variant", request.variants, known["variant"], "store")
    refuse_unknown("metric", [condition.name for condition in request.metrics], known["metric"], "store")


def _make_tables(
    connection: duckdb.DuckDBPyConnection, request: ExportRequest, metrics: tuple[Metric, ...]
) -> None:
    """Make the three tables that `choose` reads."""
    bits = [
        f"CASE WHEN json_extract_string(e.tags, {literal(_member(key))}) = {literal(value)}"
        f" THEN {1 << number} ELSE 0 END"
        for number, (key, value) in enumerate(request.tags.items())
    ]
    connection.execute(
        f"""
        CREATE TABLE step_index_of AS
        SELECT {_KEY_OF_S} AS inference_id, s.episode_id,
            coalesce(s.function_name, '') AS function_name, coalesce(s.variant_name, '') AS variant_name,
            e.purpose = 'eval' AS is_eval, e.purpose = 'train' AS is_train,
            ({" + ".join(bits) or "0"})::UBIGINT AS tag_match, 0 AS slot
        FROM steps s JOIN episodes e USING (episode_id) WHERE {_in_time(request)}
        """
    )
    connection.execute("CREATE TABLE measured (metric_name VARCHAR, target_id VARCHAR, value DOUBLE)")
    connection.execute("CREATE TABLE eval_target (target_id VARCHAR)")
    connection.execute(
        f"""
        CREATE TABLE abandoned AS
        SELECT episode_id AS target_id, arg_max(reason, feedback_id) AS reason FROM (
            SELECT episode_id, feedback_id,
                   json_extract_string(tags, {literal(_member(ABANDONED_TAG))}) AS reason
            FROM feedback WHERE kind = 'comment'
        ) WHERE reason IS NOT NULL GROUP BY episode_id
        """
    )
    wanted = {condition.name for condition in request.metrics}
    for metric in metrics:
        if metric.name in wanted:
            is_episode = metric.level == MetricLevel.EPISODE
            field = f"metrics.{quoted(metric.name)}"
            connection.execute(
                f"INSERT INTO measured SELECT {literal(metric.name)}, {'episode_id' if is_episode else _KEY},"
                f" {field}{'::INT' if metric.kind == FeedbackKind.BOOLEAN else ''}::DOUBLE"
                f" FROM {'episodes' if is_episode else 'steps'} WHERE {field} IS NOT NULL"
            )


def _ask(connection: duckdb.DuckDBPyConnection, store: Store, request: ExportRequest) -> Question:
    """Parse the conditions of a request, and make the tables for them."""
    if request.where is None and request.limit is None:
        return NO_QUESTION
    names, sql = names_of(store, connection, with_steps=True)
    question = read_question(request, names)

    def columns(wanted: list[str]) -> str:
        return "".join(f", {sql[name]} AS {quoted(column_name(name))}" for name in wanted)

    connection.execute(
        f"CREATE TEMP TABLE asked_episode AS SELECT episode_id AS of_episode{columns(question.episode_names)}"
        " FROM episodes"
    )
    if question.is_about_steps:
        connection.execute(
            f"""
            CREATE TEMP TABLE asked_step AS SELECT * FROM (
                SELECT {_KEY} AS of_step, episode_id AS of_episode{columns(question.step_names)} FROM steps
            ) JOIN asked_episode USING (of_episode)
            """
        )
    return question


def _member(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'$."{escaped}"'


def _in_time(request: ExportRequest) -> str:
    bounds = [
        f"e.started_at {operator} {literal(moment.isoformat())}::TIMESTAMPTZ"
        for moment, operator in ((request.since, ">="), (request.until, "<"))
        if moment is not None
    ]
    return " AND ".join(bounds) or "true"


def _tally(connection: duckdb.DuckDBPyConnection, request: ExportRequest) -> Tally:
    n_episodes, n_steps = kept_counts(connection)
    seen = connection.execute(
        f"""SELECT (SELECT count(*) FROM episodes), (SELECT count(*) FROM steps), count(*),
                   coalesce(sum(e.n_steps), 0)::BIGINT
            FROM episodes e WHERE NOT coalesce({_in_time(request)}, false)"""
    ).fetchone()
    n_seen, n_steps_seen, n_other_time, n_steps_other_time = seen or (0, 0, 0, 0)
    outside = [Left(reason="another time", n_episodes=n_other_time, n_steps=n_steps_other_time)]
    return Tally(
        n_episodes_seen=n_seen,
        n_episodes_kept=n_episodes,
        n_steps_seen=n_steps_seen,
        n_steps_kept=n_steps,
        left=(*(entry for entry in outside if entry.n_episodes), *left_by_reason(connection)),
    )


def _write(
    connection: duckdb.DuckDBPyConnection, store: Store, request: ExportRequest, tally: Tally, goal: Path
) -> Manifest:
    """Write one part per part of the store, so that an episode stays with its steps."""
    manifest = store.manifest
    outcome = _outcome(request, manifest.metrics)
    masked: dict[str, int] = {}
    with StoreWriter(
        goal, kind="export", metrics=manifest.metrics, source=manifest.source, as_of=manifest.as_of
    ) as writer:
        for part in store.parts("steps"):
            ids = f"(SELECT DISTINCT episode_id FROM {scan([part])})"
            kept = f"episode_id IN (SELECT episode_id FROM chosen_step) AND episode_id IN {ids}"
            connection.execute(
                f"""
                CREATE OR REPLACE TEMP TABLE step_row AS
                SELECT s.* EXCLUDE (filename) REPLACE (
                    CASE WHEN c.unselected IS NULL THEN s.loss_weight ELSE 0 END AS loss_weight,
                    coalesce(c.unselected, s.mask_reason) AS mask_reason)
                FROM {scan([part])} s JOIN chosen_step c
                    ON c.inference_id = {_KEY_OF_S}
                """
            )
            writer.add(
                connection,
                episodes=f"(SELECT * EXCLUDE (content_hash){outcome} FROM episodes WHERE {kept})",
                steps="step_row",
                feedback=f"(SELECT * FROM feedback WHERE {kept})",
            )
            rows = connection.execute(
                "SELECT mask_reason, count(*) FROM step_row WHERE mask_reason IS NOT NULL GROUP BY 1"
            ).fetchall()
            for reason, n_steps in rows:
                masked[reason] = masked.get(reason, 0) + n_steps
        left = tuple(Left(reason=reason, n_steps=n) for reason, n in sorted(masked.items()))
        tally = tally.model_copy(update={"masked": left})
        entry = lineage_entry(request, tally, parent_digest=manifest.digest)
        return writer.finish(lineage=[*manifest.lineage, entry], connection=connection)


def _outcome(request: ExportRequest, metrics: tuple[Metric, ...]) -> str:
    """Return SQL that replaces the outcome if the request defines success."""
    if request.success is None:
        return ""
    success = parse_success(request.success)
    if not any(metric.name == success.metric and metric.level == MetricLevel.EPISODE for metric in metrics):
        of_episodes = sorted(metric.name for metric in metrics if metric.level == MetricLevel.EPISODE)
        raise QueryError(
            f"--success names {success.metric!r}, which the store has not measured on episodes",
            hint=f"measured on episodes: {', '.join(of_episodes) or 'nothing'}",
        )
    value = f"metrics.{quoted(success.metric)}::FLOAT"
    return (
        f" REPLACE (CASE WHEN {value} IS NULL THEN outcome"
        f" WHEN {value} {success.operator} {success.value!r}::FLOAT THEN 'success'"
        " ELSE 'failure' END AS outcome)"
    )
