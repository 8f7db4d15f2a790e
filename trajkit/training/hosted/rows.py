"""Write the rows of a job, check them by the service's rules, and count their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.curation.pair_file import Pairs
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.request import Overlong
from trajkit.curation.rows.writers.pairs import convert_pairs
from trajkit.errors import DataError, MissingExtra, RequestError
from trajkit.formats.base import PreferenceFormat, SftFormat, Unit
from trajkit.formats.chat.think import Thoughts
from trajkit.formats.tokens.tokenizer import ESTIMATE, load_tokenizer
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
    """The tokenizer that counts tokens."""

    name: str
    """Name for `load_tokenizer`."""
    note: str | None
    """Why the count is only an estimate; None when it is exact."""


class Rows(NamedTuple):
    """The written rows of one side."""

    data: JobData
    """Source and size."""
    loss: LossReport
    """Token counts."""
    warnings: tuple[str, ...]
    """What the service learns differently from the rows, and why token counts are estimates."""


def uploaded_rows(folder: Path, side: str) -> Path:
    """Return the file of a job that is uploaded."""
    marked = folder / f"{side}.bom.jsonl"
    return marked if marked.exists() else folder / f"{side}.jsonl"


def counter_of(facts: ModelFacts, asked: str | None) -> Counter:
    """Choose the requested tokenizer, the model's own, or an estimate where its vocabulary is missing.

    Raises:
        RequestError: There is no tokenizer of the requested name.
    """
    if asked is not None:
        load_tokenizer(asked)
        return Counter(asked, None)
    if facts.encoding is None:
        note = f"the tokenizer of {facts.model} is unknown: name one with --tokenizer for a better count"
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
        DataError: The service would refuse the file, or a row is too long; the message has the findings.
        RequestError: `overlong` without a limit.
        NothingMatched: No step or pair gives a row.
    """
    lines = folder / f"{side}.jsonl"
    limits: dict[str, Any] = {}
    if overlong != Overlong.ERROR:  # the check below reports long rows anyway
        limits = {"max_length": max_tokens, "overlong": overlong, "tokenizer": counter.name}
    on_progress("writing rows", 0, None)
    if isinstance(data, Pairs):
        digest = data.manifest.digest
        made = convert_pairs(
            data, lines, to=form, source=data.path, digest=digest, thoughts=thoughts, **limits
        )
    else:
        progress = lambda n_done, n_total: on_progress("writing rows", n_done, n_total)  # noqa: E731
        made = convert(data, lines, to=form, unit=unit, thoughts=thoughts, progress=progress, **limits)
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
    assert found.loss is not None
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
    """Refuse a file that the service would refuse. No service documents a minimum of validation rows."""
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
