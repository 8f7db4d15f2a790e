"""Describe a dataset in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output.console import size, talk
from trajkit.commands.options.types import Columns, Confidence, Option, Place, StoreLike, many
from trajkit.commands.place import path_or_none, store_paths

if TYPE_CHECKING:
    from trajkit.curation.statistics.model import Stats


def stats(
    stores: Annotated[
        StoreLike | Iterable[StoreLike] | None, Option(is_repeated=True, metavar="STORE...")
    ] = None,
    *,
    score: Annotated[str | None, Option(metavar="METRIC")] = None,
    by: Columns = (),
    confidence: Confidence = 0.95,
    bootstrap: Annotated[int | None, Option(least=100, metavar="N")] = None,
    seed: Annotated[int, Option(least=0)] = 0,
    html: Annotated[Place | None, Option(metavar="FILE")] = None,
) -> Stats:
    """Describe a dataset in numbers, with their intervals.

    Several stores, or a folder of stores such as `split` writes, are taken together and compared by split.
    Shares have Wilson's interval, means Student's t, or with --bootstrap the percentiles of N resamples. The
    intervals assume independent episodes: several attempts at one seed are not, and their intervals are too
    narrow.

    Args:
        stores: One store or several, or a folder of stores. Default: the last store written here.
        score: The metric whose mean is shown. Default: episode_return, else total_reward.
        by: Also describe the episodes that are equal in these columns, metrics or tags.NAME, such as those of
            one customer or session.
        confidence: Confidence of every interval.
        bootstrap: Compute intervals of means from N resamples instead of Student's t.
        seed: Seed of the bootstrap.
        html: Also write a page of charts.

    Raises:
        RequestError: A number is out of its range.
        QueryError: There is no such metric.
        StoreError: A store cannot be read, or `html` exists.

    Example:
        trajkit stats stores/train --html stats.html
    """
    from trajkit._core.files import refuse_existing, write_text
    from trajkit.curation.statistics.stats import stats as measure

    page_path = path_or_none(html)
    if page_path is not None:
        refuse_existing(page_path)
    found = measure(
        *store_paths(stores),
        score=score,
        by=many(by),
        confidence=confidence,
        resamples=bootstrap or 0,
        seed=seed,
    )
    if page_path is not None:
        from trajkit.curation.statistics.page import page

        write_text(page_path, page(found))
        talk(f"{page_path}  {size(page_path.stat().st_size)}")
    return found
