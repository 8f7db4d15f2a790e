"""Format the summary of a store as `trajkit info` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from trajkit._core.console import Cell, count, line, plural, size, table_text
from trajkit.store.summary import GroupSummary, Summary
from trajkit.store.tally import lines_of


def text(summary: Summary) -> str:
    """A store as `trajkit info` prints it."""
    tables = (
        _groups("task", summary.tasks, summary.n_tasks),
        _groups("variant", summary.variants, summary.n_variants),
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
        said = "  ".join(f"{name}={value}" for name, value in summary.source.items())
        yield f"source    {said}"
    if summary.split:
        yield f"split     {summary.split}"
    yield f"purpose   {_tally(summary.purposes)}"
    yield f"outcome   {_tally(summary.outcomes)}"
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


def _groups(noun: str, groups: tuple[GroupSummary, ...], n_groups: int) -> str:
    if not groups:
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
    rows = [
        (
            metric.name,
            metric.level,
            count(metric.n),
            *("-" if value is None else f"{value:.4g}" for value in (metric.least, metric.mean, metric.most)),
        )
        for metric in summary.metrics
    ]
    return table_text([Cell("metric"), Cell("of"), *numbers], rows)


def _tally(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {count(number)}" for name, number in numbers.items()) or "none"


def _time(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
