"""Describe some logs on one page."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from trajkit._core.address import place_of
from trajkit._core.output.console import Meter, size, talk
from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.commands.options.types import Option, Place, StoreLike
from trajkit.commands.place import free, path_or_none, store_path
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.inspect.measure import Measured
    from trajkit.curation.inspect.model import Inspection, Leaked, Share
    from trajkit.sources.files.intake import Imported


_FEWEST_TO_SPLIT = 10
"""Episodes; with fewer, a side may stay empty."""


class _Opened(NamedTuple):
    """A store to inspect, and how it was made."""

    store: str
    shown: str
    """The place as it is shown."""
    format: str
    n_bytes: int | None
    report: Imported | None = None
    """The result of the import; None for a store."""
    sample: Share | None = None


def inspect(
    place: Annotated[StoreLike | None, Option(metavar="PATH|URL|STORE")] = None,
    *,
    from_: Annotated[str | None, Option(metavar="FORMAT")] = None,
    against: Annotated[StoreLike | None, Option(metavar="STORE|FILE")] = None,
    html: Annotated[Place | None, Option(metavar="FILE")] = None,
) -> Inspection:
    """Describe unfamiliar logs on one page.

    The page shows what the logs are, how much they hold, how much is trainable, what is scored, what failed,
    what repeats, which kinds of secrets are in them (never a secret itself), and three episodes. It ends with
    the commands to run next. From a large file or folder only a part is read, and the page shows which.
    Nothing is written except the page that --html names.

    Args:
        place: A file, a folder, a URL or a store. Default: the last store written here.
        from_: The format or source of PATH, as for `trajkit import`. Default: recognised from PATH.
        against: An evaluation set, a store or a file: report what it shares with the logs.
        html: Also write the page as one HTML file.

    Raises:
        RequestError: There is nothing there, or the format is unknown.
        NothingMatched: There is no episode in it.
        StoreError: A store cannot be read, or `html` exists.

    Example:
        trajkit inspect sample:babyai
    """
    from trajkit._core.files import refuse_existing, write_text
    from trajkit.curation.inspect.measure import measure
    from trajkit.publishing.file_scan import with_environment

    path = path_or_none(html)
    if path is not None:
        refuse_existing(path)
    patterns = with_environment({})
    with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
        opened = _opened(store_path(place), from_, Path(folder) / "logs")
        n_documents = None if opened.report is None else opened.report.n_documents
        measured = measure(opened.store, n_documents=n_documents, patterns=patterns)
        leaked = None
        if against is not None:
            other = _opened(store_path(against), None, Path(folder) / "against")
            leaked = _leaked(opened, other)
    found = _page(opened, measured, leaked, from_, patterns)
    if path is not None:
        from trajkit.curation.inspect.model import page

        write_text(path, page(found))
        talk(f"{path}  {size(path.stat().st_size)}")
    return found


def _opened(place: str, name: str | None, goal: Path) -> _Opened:
    """The store at a place, or a new one of what is there or of a part of it."""
    from trajkit.curation.inspect.model import Share
    from trajkit.sources.files.importing import Wish, import_files, shown_place
    from trajkit.sources.files.sample import Sample
    from trajkit.store.layout import MANIFEST_NAME
    from trajkit.store.reader import open_store

    if place.startswith(SAMPLE_PREFIX) or (place_of(place) / MANIFEST_NAME).is_file():
        if name is not None:
            raise RequestError(f"{place} is a store: --from is for files")
        n_bytes = sum(part.n_bytes for part in open_store(place).manifest.parts)
        return _Opened(place, place, "store", n_bytes)
    sample = Sample(place)
    wish = Wish(format=name, skip_bad=True, include_errored=True)
    with Meter() as meter:
        report, _ = import_files(place, goal, wish, on_progress=meter.show, read=sample.read)
    part = None
    if sample.how:
        part = Share(n_bytes=sample.n_bytes, n_bytes_of=sample.n_bytes_of, how=sample.how)
    return _Opened(str(goal), shown_place(place), report.format, sample.n_bytes_of, report, part)


def _leaked(train: _Opened, evaluation: _Opened) -> Leaked:
    from trajkit.curation.inspect.model import Leaked
    from trajkit.curation.leaks.leak import leak
    from trajkit.curation.leaks.report import NAMES

    report = leak(train.store, evaluation.store, reservations=())
    assert report.evaluation is not None
    return Leaked(
        against=evaluation.shown,
        n_episodes=report.evaluation.n_episodes,
        found={NAMES[one.kind][one.n != 1]: one.n for one in report.findings},
        n_blocking=sum(one.n_blocking for one in report.findings),
    )


def _page(
    opened: _Opened,
    measured: Measured,
    leaked: Leaked | None,
    from_: str | None,
    patterns: Mapping[str, str],
) -> Inspection:
    from trajkit.curation.inspect.measure import cleaner
    from trajkit.curation.inspect.model import Failed, Inspection, Wrong

    report = opened.report
    clean = cleaner(patterns)
    failed = Failed(
        outcomes=measured.outcomes,
        n_steps_errored=measured.n_steps_errored,
        left={} if report is None else {clean.text(name, "left"): n for name, n in report.left.items()},
        places=()
        if report is None
        else tuple(
            Wrong(place=clean.text(place, "place"), kind=clean.text(kind, "kind"))
            for place, kind in report.places.items()
        ),
        unread={} if report is None else report.unread,
        missing={} if report is None else report.missing,
    )
    return Inspection(
        place=opened.shown,
        format=opened.format,
        n_bytes=opened.n_bytes,
        sample=opened.sample,
        size=measured.size,
        trainable=measured.trainable,
        score=measured.score,
        metrics=measured.metrics,
        failed=failed,
        repeated=measured.repeated,
        secrets=measured.secrets,
        leaked=leaked,
        examples=measured.examples,
        commands=tuple(_commands(opened, measured, leaked, from_)),
    )


def _commands(opened: _Opened, measured: Measured, leaked: Leaked | None, from_: str | None) -> Iterator[str]:
    """At most three commands, which run as typed, one after another: each reads what the one before wrote."""
    store, n = opened.shown, 0
    if opened.report is not None:
        goal = str(free("imported"))
        bad = any(reason.startswith("cannot be read") for reason in opened.report.left)
        name = ["--from", from_ or opened.format]
        yield shlex.join(
            ["trajkit", "import", opened.shown, *name, *(["--skip-bad"] if bad else []), "-o", goal]
        )
        store, n = goal, 1
    if not measured.trainable.n_steps:
        yield shlex.join(["trajkit", "show", store, "0"])
        return
    for verb, options, is_wanted in (
        ("redact", [], bool(measured.secrets)),
        ("dedupe", ["--exact"], bool(measured.repeated.n_same_answers)),
        ("split", ["--by", "prompt"], measured.size.n_episodes >= _FEWEST_TO_SPLIT and leaked is None),
    ):
        if is_wanted and n < 2:
            goal = str(free({"redact": "redacted", "dedupe": "deduped", "split": "sides"}[verb]))
            yield shlex.join(["trajkit", verb, store, *options, "-o", goal])
            store, n = f"{goal}/train" if verb == "split" else goal, n + 1
    goal = str(free("train.jsonl"))
    yield shlex.join(["trajkit", "convert", store, "--to", "openai-sft", "-o", goal])
