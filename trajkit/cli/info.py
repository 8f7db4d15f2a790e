"""`trajkit info`: what a store is, or what a database holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit._core.settings import project
from trajkit.cli.server_options import access_of, server_options
from trajkit.commands.place import last_store
from trajkit.commands.server import refuse_server_options
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.sources.access import Access
    from trajkit.sources.open import Location
    from trajkit.store.summary import GroupSummary, Summary


_EPILOG = """\
A database is only read, and it does the counting. What a bound keeps is what an export with it brings: the
latest value of an episode counts, and evaluation and abandoned episodes are left out. A password typed as
part of a URL stays in the history of the shell: --database takes the URL from where export finds it.
"""


@click.command(epilog=_EPILOG)
@click.argument("source", required=False, metavar="[STORE|URL|ARCHIVE]")
@click.option(
    "--database",
    is_flag=True,
    help="Describe what export reads: of trajkit.toml, the environment, the stack.",
)
@click.option(
    "--timeout",
    "max_seconds",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    help="Longest that a query may run on the server.  [default: 60 where the user may set it]",
)
@server_options
@click.option("--check", is_flag=True, help="Check every value of a store, and compute its digest from them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def info(source: str | None, database: bool, check: bool, as_json: bool, **asked: Any) -> None:
    """Describe a store, a database or an archive of one; by default the last store that was written here.

    The checksums of a store (a folder, or sample:babyai) are verified first, and its digest from the hashes
    that it keeps of its episodes; --check reads every value. Of a database it tells functions
    and variants, metrics and how many episodes each bound keeps, dates and tags.
    """
    if database and source is not None:
        raise RequestError(
            "--database and what stands beside it both say what to describe", hint="leave one out"
        )
    access = access_of(asked)
    if not database and source is None:
        source = last_store()
    from trajkit.sources.open import find_source
    from trajkit.sources.tensorzero.archive.manifest import is_archive

    location = find_source(source, project())
    value = location.value.get_secret_value()
    if not location.is_database:
        refuse_server_options(access, why="this is read without one")
    if location.is_database or is_archive(Path(value)):
        if check:
            raise RequestError("--check is for stores", hint="`trajkit archive verify` checks an archive")
        _describe_database(location, access, as_json)
    else:
        _describe(value, check, as_json)


def _describe_database(location: Location, access: Access, as_json: bool) -> None:
    from trajkit.cli.look_page import print_look
    from trajkit.sources.open import look_at

    look = look_at(location, access)
    if as_json:
        console.result_json(look.model_dump(mode="json"))
    else:
        print_look(look)


def _describe(store: str, check: bool, as_json: bool) -> None:
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    summary = summarize(open_store(store), deep=check)
    if as_json:
        console.result_json(summary.model_dump(mode="json"))
        return
    for line in _lines(summary):
        console.result(line)
    _groups("task", summary.tasks, summary.n_tasks)
    _groups("variant", summary.variants, summary.n_variants)
    _metrics(summary)
    _lineage(summary)


def _lines(summary: Summary) -> Iterator[str]:
    counts = summary.counts
    checked = "checksums, digest and every value are right" if summary.is_recomputed else "checksums match"
    yield f"{summary.path}: {summary.kind}, {checked}"
    yield (
        f"{console.plural(counts.n_episodes, 'episode')}  {console.plural(counts.n_steps, 'step')}  "
        f"{console.count(counts.n_feedback)} feedback  {console.size(summary.n_bytes)}"
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
    for each in summary.published:
        tag = f", tag {each.tag}" if each.tag else ""
        yield f"published {each.repository} at {each.commit[:12]}{tag}, {_time(each.published_at)}"


def _tokens(summary: Summary) -> str:
    if summary.n_input_tokens is None and summary.n_output_tokens is None:
        return "unknown"
    missing = f" ({console.plural(summary.n_steps_uncounted, 'step')} not counted)"
    sums = (summary.n_input_tokens, summary.n_output_tokens)
    n_in, n_out = ("unknown" if number is None else console.count(number) for number in sums)
    return f"{n_in} in, {n_out} out{missing if summary.n_steps_uncounted else ''}"


def _groups(noun: str, groups: tuple[GroupSummary, ...], n_groups: int) -> None:
    if not groups:
        return
    console.result()
    console.table(
        [
            console.Cell(noun),
            console.Cell("episodes", is_number=True),
            console.Cell("steps", is_number=True),
            console.Cell("success", is_number=True),
        ],
        [
            (
                "unknown" if group.name is None else group.name,
                console.count(group.n_episodes),
                console.count(group.n_steps),
                console.count(group.n_success),
            )
            for group in groups
        ],
    )
    if n_groups > len(groups):
        console.result(f"… and {console.plural(n_groups - len(groups), noun)} more")


def _metrics(summary: Summary) -> None:
    if not summary.metrics:
        return
    console.result()
    numbers = [console.Cell(heading, is_number=True) for heading in ("measured", "min", "mean", "max")]
    console.table(
        [console.Cell("metric"), console.Cell("of"), *numbers],
        [
            (
                metric.name,
                metric.level,
                console.count(metric.n),
                *(
                    "-" if value is None else f"{value:.4g}"
                    for value in (metric.least, metric.mean, metric.most)
                ),
            )
            for metric in summary.metrics
        ],
    )


def _lineage(summary: Summary) -> None:
    from trajkit.store.tally import lines_of

    for entry in summary.lineage:
        console.result()
        for line in lines_of(entry):
            console.result(line)


def _tally(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {console.count(number)}" for name, number in numbers.items()) or "none"


def _time(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
