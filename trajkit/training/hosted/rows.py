"""The rows of a job as files: written, checked by the service's own rules, and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.curation.pair_file import Pairs
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.pairs import convert_pairs
from trajkit.curation.rows.request import Overlong
from trajkit.errors import DataError, MissingExtra, RequestError
from trajkit.formats.base import PreferenceFormat, SftFormat, Unit
from trajkit.formats.think import Thoughts
from trajkit.formats.tokenizer import ESTIMATE, load_tokenizer
from trajkit.formats.validation.file import Validation, validate
from trajkit.formats.validation.finding import Severity
from trajkit.formats.validation.loss import LossReport
from trajkit.formats.validation.target import TARGETS, Bom
from trajkit.training.hosted.service import ModelFacts
from trajkit.training.job import JobData
from trajkit.training.side import Side, place_of

TRAIN, VALIDATION = "training", "validation"
_TOO_FEW = "too few rows"
_MOST_SHOWN = 3


class Counter(NamedTuple):
    """What counts the tokens of rows."""

    name: str
    """As `load_tokenizer` takes it."""
    note: str | None
    """Why it is only an estimate; None when the vocabulary is here."""


class Rows(NamedTuple):
    """One side of a job, written."""

    data: JobData
    """What it is made of and how large it is."""
    loss: LossReport
    """Its tokens."""
    warnings: tuple[str, ...]
    """What the service learns otherwise than the rows say it, and why tokens are estimates."""


def uploaded_rows(folder: Path, side: str) -> Path:
    """The file of a job's folder that is uploaded."""
    marked = folder / f"{side}.bom.jsonl"
    return marked if marked.exists() else folder / f"{side}.jsonl"


def counter_of(facts: ModelFacts, asked: str | None) -> Counter:
    """The tokenizer that was asked for, or the model's own; an estimate where its vocabulary is not here.

    Raises:
        RequestError: There is none of the name that was asked for.
    """
    if asked is not None:
        load_tokenizer(asked)
        return Counter(asked, None)
    if facts.encoding is None:
        note = f"the tokenizer of {facts.model} is not known: name one with --tokenizer to count better"
        return Counter(ESTIMATE, note)
    name = f"tiktoken:{facts.encoding}"
    try:
        load_tokenizer(name)
    except (RequestError, MissingExtra) as error:
        return Counter(ESTIMATE, f"{error.message}; {error.hint}" if error.hint else error.message)
    return Counter(name, None)


def write_rows(
    data: Side,
    folder: Path,
    side: str,
    *,
    form: SftFormat | PreferenceFormat,
    rules: str,
    unit: Unit,
    thoughts: Thoughts,
    counter: Counter,
    max_tokens: int | None,
    overlong: Overlong,
    on_progress: Callable[[str, int, int | None], None],
) -> Rows:
    """Write one side of a job and check it.

    Raises:
        DataError: The service would refuse it, or a row is too long; the message names the first findings.
        RequestError: `overlong` without a limit.
        NothingMatched: No step or pair gives a row.
    """
    lines = folder / f"{side}.jsonl"
    limits: dict[str, Any] = {}
    if overlong != Overlong.ERROR:  # an error is told by the check, which counts anyway
        limits = {"max_length": max_tokens, "overlong": overlong, "tokenizer": counter.name}
    on_progress("writing rows", 0, None)
    if isinstance(data, Pairs):
        digest = data.manifest.digest
        made = convert_pairs(
            data, lines, to=form, source=data.path, digest=digest, thoughts=thoughts, **limits
        )
    else:
        told = lambda n_done, n_total: on_progress("writing rows", n_done, n_total)  # noqa: E731
        made = convert(data, lines, to=form, unit=unit, thoughts=thoughts, progress=told, **limits)
    wants_mark = TARGETS[rules].bom == Bom.WANTED
    found = validate(
        lines,
        target=rules,
        tokenizer=counter.name,
        max_length=max_tokens,
        repair_to=folder / f"{side}.bom.jsonl" if wants_mark else None,
        on_progress=lambda n_done, n_total: on_progress("checking rows", n_done, n_total),
    )
    _refuse(found, place_of(data), rules, side=side)
    assert found.loss is not None  # a tokenizer was given
    return Rows(
        JobData.of(
            made,
            n_rows=found.n_rows,
            n_tokens=found.loss.n_tokens,
            n_learned_tokens=found.loss.n_learned,
            longest=found.loss.quantiles["max"],
        ),
        found.loss,
        tuple(_warnings(found, counter)),
    )


def _warnings(found: Validation, counter: Counter) -> Iterator[str]:
    if counter.note is not None:
        yield counter.note
    for finding in found.findings:
        if finding.severity == Severity.WARNING:
            yield f"{finding.kind}: {finding.hint}"


def _refuse(found: Validation, store: Path, rules: str, *, side: str) -> None:
    """Raise where the service would refuse the file. How few rows may measure no service says."""
    wrong = [
        finding
        for finding in found.findings
        if finding.severity == Severity.ERROR and not (side == VALIDATION and finding.kind == _TOO_FEW)
    ]
    if not wrong:
        return
    if wrong[0].kind == _TOO_FEW:
        raise DataError(
            f"{store} gives {found.n_rows} rows, and {wrong[0].hint}",
            hint="export more episodes, or --unit step and --val-fraction 0, which leave more rows to learn",
        )
    shown = "; ".join(map(str, wrong[:_MOST_SHOWN]))
    n_more = found.n_errors - min(len(wrong), _MOST_SHOWN)
    raise DataError(
        f"{rules} would refuse the rows of {store}: {shown}{f'; and {n_more:,} more' if n_more else ''}",
        hint=wrong[0].hint,
    )
