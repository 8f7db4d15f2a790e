"""Look at what there is: stores, databases, episodes, numbers, where a thing comes from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit.commands.place import Place, StoreLike, store_path, store_paths
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.stats_model import Stats
    from trajkit.registry.lineage import EpisodeLineage, ModelLineage, StoreLineage
    from trajkit.schema import Episode
    from trajkit.sources.tensorzero.look_models import DatabaseLook
    from trajkit.store.summary import Summary


def info(
    source: StoreLike | None = None,
    *,
    database: bool = False,
    check: bool = False,
    timeout: int | None = None,
    max_threads: int | None = None,
    max_server_memory: int | None = None,
    ca_cert: Place | None = None,
) -> Summary | DatabaseLook:
    """Describe a store, whose checksums are verified first, or what a database or an archive holds.

    Args:
        source: A store, a URL or an archive; None for the last store that was written here.
        database: Describe what `export` reads instead.
        check: Check every value of a store, and compute its digest from them.
        timeout: Longest that a query may run on the server, in seconds.
        max_threads: Most threads of the server for a query.
        max_server_memory: Most memory of the server for a query, in bytes.
        ca_cert: Trust the certificates that these (PEM) have signed.

    Raises:
        RequestError: Both `source` and `database` are given, or an option is for databases.
        StoreError: The store is damaged.
        ServiceError: The database cannot be reached.
    """
    from trajkit._core.settings import project
    from trajkit.commands.server import access, refuse_server_options
    from trajkit.sources.open import find_source, look_at
    from trajkit.sources.tensorzero.archive.manifest import is_archive
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    if database and source is not None:
        raise RequestError(
            "--database and what stands beside it both say what to describe", hint="leave one out"
        )
    asked = access(max_threads, max_server_memory, ca_cert, max_seconds=timeout)
    named = None if database else store_path(source)
    location = find_source(named, project())
    value = location.value.get_secret_value()
    if not location.is_database:
        refuse_server_options(asked, why="this is read without one")
    if location.is_database or is_archive(Path(value)):
        if check:
            raise RequestError("check is for stores", hint="`trajkit archive verify` checks an archive")
        return look_at(location, asked)
    return summarize(open_store(value), deep=check)


def show(store: StoreLike, episode: str | int) -> Episode:
    """One episode of a store, to be read; `episode.prompts()` has every message that the model saw.

    Args:
        store: The store.
        episode: Its id, the beginning of it, or its position from 0.

    Raises:
        NothingMatched: There is none.
    """
    from trajkit.store.dataset import Dataset, open_dataset

    dataset = store if isinstance(store, Dataset) else open_dataset(store_path(store))
    return dataset.episode(str(episode))


def query(
    store: StoreLike, sql: str, *, limit: int | None = None, timeout: float = 300.0, memory: float = 4.0
) -> list[dict[str, Any]]:
    """Ask a store with one SQL SELECT over episodes, steps, feedback and steps_full.

    Args:
        store: The store.
        sql: In DuckDB's dialect. It sees the store and nothing else, and changes nothing.
        limit: Most rows; None for all.
        timeout: Seconds that the query may run.
        memory: GB that DuckDB may take. The texts that functions make do not count.

    Returns:
        The rows, by the names of the columns; JSON columns are values.

    Raises:
        QueryError: It is not one SELECT that reads, names what is not there, or takes too long.
    """
    import itertools
    import json

    from trajkit.store.query import ask
    from trajkit.store.reader import open_store

    with ask(
        open_store(store_path(store)), sql, limit_s=timeout, memory_limit=f"{int(memory * 1e9)}B"
    ) as answer:
        return [
            {
                name: json.loads(value) if is_json and value is not None else value
                for name, value, is_json in zip(answer.columns, row, answer.is_json, strict=True)
            }
            for row in itertools.islice(answer.rows(), limit)
        ]


def stats(
    stores: StoreLike | Iterable[StoreLike] | None = None,
    *,
    score: str | None = None,
    confidence: float = 0.95,
    bootstrap: int | None = None,
    seed: int = 0,
    html: Place | None = None,
) -> Stats:
    """Numbers about a dataset, with their intervals.

    Args:
        stores: One or several, or a folder of stores; None for the last one that was written here.
        score: The metric whose mean is told; None for `episode_return`, else `total_reward`.
        confidence: Of every interval.
        bootstrap: Intervals of means from so many resamples; None for Student's t.
        seed: Of the bootstrap.
        html: Also write a page of charts.

    Raises:
        RequestError: A number is out of its range.
        QueryError: There is no such metric.
        StoreError: A store cannot be read, or `html` exists.
    """
    from trajkit._core.files import refuse_existing, write_text
    from trajkit.curation.stats import stats as stats_of
    from trajkit.curation.stats_page import page

    if html is not None:
        refuse_existing(Path(html))
    found = stats_of(
        *store_paths(stores), score=score, confidence=confidence, resamples=bootstrap or 0, seed=seed
    )
    if html is not None:
        write_text(Path(html), page(found))
    return found


def lineage(
    thing: str | None = None, *, runs: Place = "runs"
) -> list[ModelLineage | StoreLineage | EpisodeLineage]:
    """Where a thing comes from, and what came of it.

    Args:
        thing: A model, a variant, a store or the id of an episode; None for the model of the last job.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: Nothing is known of it.
    """
    from trajkit.commands.ancestry import answers, last_job
    from trajkit.commands.contenders import lineage_in

    return list(answers(lineage_in(Path(runs)), thing or last_job()))
