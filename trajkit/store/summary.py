"""Summarize a store in numbers and lines that fit on a screen, however large it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from trajkit._core.output.console import Cell, count, line, plural, size, table_text
from trajkit._core.output.result import Result
from trajkit.errors import StoreError
from trajkit.schema import Counts, LineageEntry, Metric, Model, Published
from trajkit.schema.base import JsonObject, UtcTime
from trajkit.store.digest import store_digest
from trajkit.store.engine import one_row
from trajkit.store.layout import quoted
from trajkit.store.query import explaining, fenced
from trajkit.store.reader import Store, verify
from trajkit.store.tally import lines_of

TOKEN_TRUE = (
    "(prompt_token_ids IS NOT NULL AND len(completion_token_ids) > 0 "
    "AND len(logprobs) IS NOT DISTINCT FROM len(completion_token_ids))"
)
"""SQL that is true of a step with its sampled token ids and their log-probabilities."""
MOST_GROUPS = 30
"""Maximum listed tasks and variants; the others are only counted."""


class GroupSummary(Model):
    """Episodes that share a name."""

    name: str | None
    """The task (with its environment) or the variant; None when unknown."""
    n_episodes: int
    """Its episodes; one with several variants counts for each."""
    n_steps: int
    """Its steps."""
    n_success: int
    """Its successful episodes."""


class MetricSummary(Model):
    """Statistics of one metric."""

    name: str
    """Its name."""
    level: str
    """`episode` or `inference`."""
    kind: str
    """`float` or `boolean`."""
    n: int
    """Number of measured episodes or steps."""
    least: float | None
    """Smallest value; 0 or 1 for a boolean. None if nothing was measured."""
    mean: float | None
    """Mean of the measured values; for a boolean the share of true."""
    most: float | None
    """Largest value."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Name, level, number, smallest value, mean and largest value, as a table shows them."""
        values = ("-" if value is None else f"{value:.4g}" for value in (self.least, self.mean, self.most))
        return (self.name, self.level, count(self.n), *values)


class Summary(Model, Result):
    """Description of a store whose checksums and digest match, as `trajkit info` shows it."""

    path: Path
    """Path of the store."""
    kind: str
    """The command that made it."""
    digest: str
    """Digest of its content."""
    format_version: int
    """Version of its layout."""
    counts: Counts
    """Numbers of rows."""
    n_bytes: int
    """Size of its parts on disk."""
    created_at: UtcTime
    """Time at which it was written."""
    as_of: UtcTime | None
    """Time at which the source was read."""
    trajkit_version: str
    """The trajkit that wrote it."""
    split: str | None
    """Name of the side of a split that it is."""
    source: JsonObject
    """Source of its episodes."""
    purposes: dict[str, int]
    """Episodes by purpose."""
    outcomes: dict[str, int]
    """Episodes by outcome."""
    tasks: tuple[GroupSummary, ...]
    """By environment and task, most episodes first."""
    n_tasks: int
    """Number of tasks; more than are listed if there are many."""
    variants: tuple[GroupSummary, ...]
    """By variant, most episodes first."""
    n_variants: int
    """Number of variants."""
    metrics: tuple[MetricSummary, ...]
    """By level and name."""
    n_input_tokens: int | None
    """Sum over the steps whose tokens were counted; None if there are none."""
    n_output_tokens: int | None
    """Sum over the steps whose tokens were counted; None if there are none."""
    n_steps_uncounted: int
    """Steps whose tokens were not counted."""
    n_sampled: int
    """Steps with the id of an inference: a model answered them."""
    n_token_true: int
    """Steps with the sampled token ids of prompt and completion, and a log-probability for each token of the
    completion."""
    n_model_versions: int
    """Number of distinct known versions of the weights that answered."""
    lineage: tuple[LineageEntry, ...]
    """Lineage, oldest entry first."""
    published: tuple[Published, ...]
    """Its publications, oldest first."""
    is_recomputed: bool
    """Whether every value was checked and the digest computed from the values; otherwise it was computed from
    the stored hashes of the episodes."""

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<info of {self.path}: {self.counts.n_episodes:,} episodes, {self.counts.n_steps:,} steps>"


def summarize(store: Store, *, deep: bool = False) -> Summary:
    """Verify a store's checksums and its digest, and describe it.

    Args:
        store: The store.
        deep: Check every value, and compute the digest from the values instead of the hashes of the episodes.

    Raises:
        StoreError: A part is missing or changed, or the digest differs.
    """
    manifest = store.manifest
    if deep:
        verify(store, deep=True)
    with fenced(store) as connection, explaining(store, connection):
        if (found := store_digest(connection, "episodes")) != manifest.digest:
            raise StoreError(
                f"{store.path}: its episodes give the digest {found}; its manifest says {manifest.digest}",
                hint="the manifest or the episodes were changed: copy or build the store again",
            )
        tasks, n_tasks = _groups(
            connection,
            "SELECT CASE WHEN env_id IS NULL THEN task ELSE concat_ws('/', env_id, task) END AS name, "
            "n_steps, outcome FROM episodes",
        )
        variants, n_variants = _groups(
            connection,
            "SELECT s.variant_name AS name, s.n AS n_steps, e.outcome FROM (SELECT episode_id, variant_name, "
            "count(*) AS n FROM steps GROUP BY ALL) AS s JOIN episodes AS e USING (episode_id)",
        )
        tokens = one_row(
            connection,
            "SELECT sum(n_input_tokens), sum(n_output_tokens), "
            "count(*) FILTER (n_input_tokens IS NULL OR n_output_tokens IS NULL) FROM steps",
        )
        sampled = one_row(
            connection,
            f"SELECT count(*), count(*) FILTER {TOKEN_TRUE}, count(DISTINCT model_version) FROM steps "
            "WHERE inference_id IS NOT NULL",
        )
        return Summary(
            path=store.path,
            **{
                name: getattr(manifest, name)
                for name in type(manifest).model_fields.keys() & Summary.model_fields.keys() - {"metrics"}
            },
            n_bytes=sum(part.n_bytes for part in manifest.parts),
            purposes=_tally(connection, "purpose"),
            outcomes=_tally(connection, "outcome"),
            tasks=tasks,
            n_tasks=n_tasks,
            variants=variants,
            n_variants=n_variants,
            metrics=tuple(_metric(connection, metric) for metric in manifest.metrics),
            n_input_tokens=tokens[0],
            n_output_tokens=tokens[1],
            n_steps_uncounted=tokens[2],
            n_sampled=sampled[0],
            n_token_true=sampled[1],
            n_model_versions=sampled[2],
            is_recomputed=deep,
        )


def _tally(connection: duckdb.DuckDBPyConnection, column: str) -> dict[str, int]:
    rows = connection.execute(
        f"SELECT {column}, count(*) FROM episodes GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    return dict(rows)


def _groups(connection: duckdb.DuckDBPyConnection, rows: str) -> tuple[tuple[GroupSummary, ...], int]:
    grouped = (
        "SELECT name, count(*) AS n_episodes, CAST(sum(n_steps) AS BIGINT) AS n_steps, "
        f"count_if(outcome = 'success') AS n_success FROM ({rows}) GROUP BY name"
    )
    listed = connection.execute(
        f"SELECT *, count(*) OVER () FROM ({grouped}) ORDER BY n_episodes DESC, name LIMIT {MOST_GROUPS}"
    ).fetchall()
    groups = tuple(
        GroupSummary(name=name, n_episodes=n_episodes, n_steps=n_steps, n_success=n_success)
        for name, n_episodes, n_steps, n_success, _ in listed
    )
    return groups, listed[0][4] if listed else 0


def _metric(connection: duckdb.DuckDBPyConnection, metric: Metric) -> MetricSummary:
    table = "episodes" if metric.level == "episode" else "steps"
    value = f"CAST(metrics.{quoted(metric.name)} AS DOUBLE)"
    n, least, mean, most = connection.execute(
        f"SELECT count({value}), min({value}), avg({value}), max({value}) FROM {table}"
    ).fetchall()[0]
    return MetricSummary(
        name=metric.name, level=metric.level, kind=metric.kind, n=n, least=least, mean=mean, most=most
    )


def text(summary: Summary) -> str:
    """Return a store's description as `trajkit info` prints it."""
    tables = (
        _group_lines("task", summary.tasks, summary.n_tasks),
        _group_lines("variant", summary.variants, summary.n_variants),
        _metrics(summary),
        *("\n".join(map(line, lines_of(entry))) for entry in summary.lineage),
    )
    return "\n\n".join(("\n".join(map(line, _lines(summary))), *filter(None, tables)))


def _lines(summary: Summary) -> Iterator[str]:
    counts = summary.counts
    checked = "checksums, digest and every value are right" if summary.is_recomputed else "checksums match"
    yield f"{summary.path}: {summary.kind}, {checked}"
    yield (
        f"{plural(counts.n_episodes, 'episode')}  {plural(counts.n_steps, 'step')}  "
        f"{count(counts.n_feedback)} feedback  {size(summary.n_bytes)}"
    )
    yield f"digest    {summary.digest[:16]}  (store version {summary.format_version})"
    as_of = f", source read at {_time(summary.as_of)}" if summary.as_of else ""
    yield f"written   {_time(summary.created_at)} by trajkit {summary.trajkit_version}{as_of}"
    if summary.source:
        source = "  ".join(f"{name}={value}" for name, value in summary.source.items())
        yield f"source    {source}"
    if summary.split:
        yield f"split     {summary.split}"
    yield f"purpose   {_tally_text(summary.purposes)}"
    yield f"outcome   {_tally_text(summary.outcomes)}"
    yield f"tokens    {_tokens(summary)}"
    if summary.n_sampled:
        yield f"sampled   {_sampled(summary)}"
    for each in summary.published:
        tag = f", tag {each.tag}" if each.tag else ""
        yield f"published {each.repository} at {each.commit[:12]}{tag}, {_time(each.published_at)}"


def _tokens(summary: Summary) -> str:
    if summary.n_input_tokens is None and summary.n_output_tokens is None:
        return "unknown"
    missing = f" ({plural(summary.n_steps_uncounted, 'step')} not counted)"
    sums = (summary.n_input_tokens, summary.n_output_tokens)
    n_in, n_out = ("unknown" if number is None else count(number) for number in sums)
    return f"{n_in} in, {n_out} out{missing if summary.n_steps_uncounted else ''}"


def _sampled(summary: Summary) -> str:
    by = f", {plural(summary.n_model_versions, 'model version')}" if summary.n_model_versions else ""
    n, of = count(summary.n_token_true), plural(summary.n_sampled, "answer")
    return f"{n} of {of} with token ids and log-probabilities{by}"


def _group_lines(noun: str, groups: tuple[GroupSummary, ...], n_groups: int) -> str:
    if [(group.name, group.n_success) for group in groups] in ([], [(None, 0)]):
        return ""
    numbers = [Cell(heading, is_number=True) for heading in ("episodes", "steps", "success")]
    rows = [
        (
            "unknown" if group.name is None else group.name,
            count(group.n_episodes),
            count(group.n_steps),
            count(group.n_success),
        )
        for group in groups
    ]
    more = f"\n… and {plural(n_groups - len(groups), noun)} more" if n_groups > len(groups) else ""
    return table_text([Cell(noun), *numbers], rows) + more


def _metrics(summary: Summary) -> str:
    if not summary.metrics:
        return ""
    numbers = [Cell(heading, is_number=True) for heading in ("measured", "min", "mean", "max")]
    rows = [metric.cells for metric in summary.metrics]
    return table_text([Cell("metric"), Cell("of"), *numbers], rows)


def _tally_text(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {count(number)}" for name, number in numbers.items()) or "none"


def _time(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
