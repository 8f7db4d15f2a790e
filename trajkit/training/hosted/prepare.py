"""Prepare a job at a service: its rows, their cost, and the leak check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from trajkit.curation.leaks.report import LeakReport
from trajkit.curation.pair_file import Pairs
from trajkit.curation.rows.request import Overlong
from trajkit.errors import DataError, MissingExtra, RequestError
from trajkit.formats.base import Unit
from trajkit.formats.chat.think import Thoughts
from trajkit.formats.tokens.tokenizer import ESTIMATE, load_tokenizer
from trajkit.formats.validation.file import Validation, validate
from trajkit.formats.validation.finding import Severity
from trajkit.formats.validation.loss import LossReport
from trajkit.formats.validation.prices import Prices
from trajkit.formats.validation.target import TARGETS, Bom
from trajkit.schema import Model
from trajkit.schema.base import JsonObject, Name
from trajkit.training.hosted.answer import MissingKey, Unreachable
from trajkit.training.hosted.remote import Estimate, Remote, order_of
from trajkit.training.hosted.service import ModelFacts, Service
from trajkit.training.job import JobData, TuneJob, key_of
from trajkit.training.new_job import (
    Side,
    Written,
    digest_of,
    leak_of,
    open_side,
    origin_of_side,
    place_of,
    prepared_job,
    written_rows,
)
from trajkit.training.runs import Runs

Progress = Callable[[str, int, int | None], None]
TRAIN, VALIDATION = "training", "validation"
_TOO_FEW = "too few rows"
_MOST_SHOWN = 3
_SOON_DAYS = 60
_DECIDING = ("openai", "tiktoken")


class HostedRequest(Model):
    """A job to prepare."""

    method: Annotated[str, Field(pattern="^(sft|dpo)$")] = "sft"
    """Training method."""
    base: Name
    """The base model, as the service names it."""
    train: Path
    """Training store; for `dpo`, the pairs."""
    validation: Path | None = None
    """Validation data of the same kind; None for none."""
    recipe: JsonObject = {}
    """Options of the service, by its own names."""
    unit: Unit = Unit.EPISODE
    """Content of a row."""
    thoughts: Thoughts = Thoughts.KEEP
    """Treatment of thoughts."""
    overlong: Overlong = Overlong.ERROR
    """Treatment of rows that are longer than the limit."""
    max_length: int | None = None
    """Maximum tokens per row; None for the model's own limit, or none."""
    tokenizer: str | None = None
    """Tokenizer that counts tokens; None for the model's own if it is public."""
    allow_leak: bool = False
    """Train although training and validation data leak; the report records it."""


class Prepared(NamedTuple):
    """A job that can be started."""

    job: TuneJob
    """The saved job."""
    leak: LeakReport
    """Result of the leak check."""
    facts: ModelFacts
    """Known facts about the model."""
    notes: tuple[str, ...]
    """Notes for the user before paying."""
    is_new: bool
    """False when the same job existed already."""


def prepare(
    request: HostedRequest,
    service: Service,
    runs: Runs,
    *,
    name: str | None = None,
    prices: Prices | None = None,
    is_dry_run: bool = False,
    on_progress: Progress = lambda what, n_done, n_total: None,
) -> Prepared:
    """Check the model at the service, write and check the rows, and estimate the cost.

    Nothing is sent and nothing is started. The same data, model and recipe at the same service give the same
    job, which is then found instead of created.

    Args:
        request: The job to prepare.
        service: The service.
        runs: Folder of the jobs.
        name: Name of the job; None for one made of the model and the store.
        prices: The user's own prices, which replace those of the service and of trajkit.
        is_dry_run: Continue without a key or a network, with known facts.
        on_progress: Called with the current phase, the amount done, and the total (None when unknown).

    Raises:
        RequestError: There is no key, an option is invalid, the model is shut down, or the name is taken.
        ServiceError: The service cannot be reached, has no such model, or takes no jobs.
        DataError: The stores leak, or the service would refuse a row.
        NothingMatched: No step is learned.
        StoreError: A store cannot be read.
    """
    recipe, sides = _opened(request, service)
    on_progress(f"asking {service.where}", 0, None)
    facts = _with_prices(_facts(service, request.base, is_dry_run=is_dry_run), prices)
    today = datetime.now(UTC).date()
    _refuse_shut_down(facts, today)
    on_progress("looking for leaks", 0, None)
    report = leak_of(sides[TRAIN], sides.get(VALIDATION)).checked(allow_leak=request.allow_leak)
    about_rows = request.model_dump(mode="json", include={"unit", "thoughts", "overlong", "max_length"})
    whole = recipe | {"rows": about_rows, "allow_leak": request.allow_leak}
    key = key_of(
        target=f"{service.target} {service.where}",
        method=request.method,
        base=request.base,
        recipe=whole,
        digests=tuple(digest_of(side) for side in sides.values()),
    )
    warnings = tuple(_warnings(facts, service, today))
    rows: dict[str, Rows] = {}

    def write(folder: Path) -> Written:
        rows.update(_rows(request, service, facts, sides, folder, on_progress))
        estimate = _estimate(service, recipe, rows[TRAIN], facts)
        remote = Remote(where=service.where, settings=service.settings, estimate=estimate)
        validation = rows[VALIDATION].data if VALIDATION in rows else None
        return Written(rows[TRAIN].data, validation, remote.model_dump(mode="json"))

    job, is_new = prepared_job(
        runs,
        write,
        name=name,
        data=request.train,
        origin=lambda: origin_of_side(sides[TRAIN]),
        leak=report,
        packages=_DECIDING,
        key=key,
        target=service.target,
        method=request.method,
        base=request.base,
        recipe=whole,
    )
    about = [words for made in rows.values() for words in made.warnings]
    if is_new and not is_dry_run and (there := service.find(order_of(job, Remote.of(job)))) is not None:
        name = f"{there.remote_id} ({there.said})"
        about.append(f"{service.target} has this job already, as {name}: nothing is paid again")
    return Prepared(job, report, facts, tuple(dict.fromkeys((*warnings, *about))), is_new)


def _opened(request: HostedRequest, service: Service) -> tuple[JsonObject, dict[str, Side]]:
    """Return the parsed recipe, and the training and validation data."""
    if request.method not in service.methods:
        raise RequestError(
            f"{service.target} has no {request.method}", hint=f"it has {', '.join(service.methods)}"
        )
    recipe = service.resolved(request.method, request.recipe)
    sides = {TRAIN: open_side(request.train, request.method)}
    if request.validation is not None:
        sides[VALIDATION] = open_side(request.validation, request.method)
    return recipe, sides


def _rows(
    request: HostedRequest,
    service: Service,
    facts: ModelFacts,
    sides: Mapping[str, Side],
    folder: Path,
    on_progress: Progress,
) -> dict[str, Rows]:
    counter = _counter(facts, request.tokenizer)
    return {
        side: _write_side(request, service, facts, counter, folder / f"{side}.jsonl", data, on_progress)
        for side, data in sides.items()
    }


def _facts(service: Service, model: str, *, is_dry_run: bool) -> ModelFacts:
    try:
        return service.preflight(model)
    except (MissingKey, Unreachable) as error:
        if not is_dry_run:
            raise
        facts = service.known(model)
        said = f"the service could not be called: {error.message}"
        return facts.model_copy(update={"warnings": (*facts.warnings, said)})


def _with_prices(facts: ModelFacts, prices: Prices | None) -> ModelFacts:
    """Return the facts, with the user's own values where given."""
    known = None if prices is None else prices.find(facts.model)
    if prices is None or known is None:
        return facts
    own = {
        name: value
        for name in ("usd_per_million_tokens", "max_tokens", "encoding", "last_job_on", "shutdown_on")
        if (value := getattr(known, name)) is not None
    }
    if known.usd_per_million_tokens is not None:
        own["price_as_of"] = prices.as_of
    return facts.model_copy(update=own)


def _refuse_shut_down(facts: ModelFacts, today: date) -> None:
    if facts.shutdown_on is not None and facts.shutdown_on <= today:
        raise RequestError(
            f"{facts.model} was shut down on {facts.shutdown_on}",
            hint="choose another --model; `trajkit sft local` needs no service",
        )


def _warnings(facts: ModelFacts, service: Service, today: date) -> Iterator[str]:
    if facts.last_job_on is not None and facts.last_job_on < today:
        yield f"no job on {facts.model} can be created since {facts.last_job_on}: the service may refuse it"
    elif facts.last_job_on is not None and (facts.last_job_on - today).days <= _SOON_DAYS:
        n_days = (facts.last_job_on - today).days
        yield f"jobs on {facts.model} can be created until {facts.last_job_on}: {n_days} days from now"
    if facts.shutdown_on is not None:
        yield f"{facts.model} and models tuned from it end on {facts.shutdown_on}"
    yield from facts.warnings
    if service.listing_lag_s is not None:
        yield (
            f"{service.target} does not detect repeated jobs: trajkit looks for the job first, but if"
            f" another machine starts the same job within {service.listing_lag_s:g} s, both may cost money"
        )


def _estimate(service: Service, recipe: JsonObject, rows: Rows, facts: ModelFacts) -> Estimate:
    n_epochs = service.epochs(recipe, rows.data.n_rows)
    n_tokens = None if n_epochs is None else round(rows.loss.n_within * n_epochs)
    price = facts.usd_per_million_tokens
    cost_usd = None if price is None or n_tokens is None else n_tokens / 1e6 * price
    return Estimate(
        n_epochs=n_epochs,
        n_trained_tokens=n_tokens,
        is_exact=rows.loss.is_exact,
        counted_by=rows.loss.tokenizer,
        usd_per_million_tokens=price,
        cost_usd=cost_usd,
    )


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
    """How the service's training differs from the rows, and why token counts are estimates."""


def uploaded_rows(folder: Path, side: str) -> Path:
    """Return the file of a job that is uploaded."""
    marked = folder / f"{side}.bom.jsonl"
    return marked if marked.exists() else folder / f"{side}.jsonl"


def _counter(facts: ModelFacts, asked: str | None) -> Counter:
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


def _write_side(
    request: HostedRequest,
    service: Service,
    facts: ModelFacts,
    counter: Counter,
    lines: Path,
    data: Side,
    on_progress: Progress,
) -> Rows:
    """Write one side of a job and check it."""
    form, rules, side = service.format(request.method), service.rules, lines.stem
    max_tokens = request.max_length or facts.max_tokens
    options: dict[str, Any] = {"thoughts": request.thoughts}
    if request.overlong != Overlong.ERROR:  # the check below reports long rows anyway
        options |= {"max_length": max_tokens, "overlong": request.overlong, "tokenizer": counter.name}
    if not isinstance(data, Pairs):
        options["unit"] = request.unit
    made = written_rows(data, lines, form, on_progress, **options)
    wants_mark = TARGETS[rules].bom == Bom.WANTED
    found = validate(
        lines,
        target=rules,
        tokenizer=counter.name,
        max_length=max_tokens,
        repair_to=lines.with_name(f"{side}.bom.jsonl") if wants_mark else None,
        on_progress=lambda n_done, n_total: on_progress("checking rows", n_done, n_total),
    )
    _refuse_rows(found, place_of(data), rules, side=side)
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
        tuple(_notes(found, counter)),
    )


def _notes(found: Validation, counter: Counter) -> Iterator[str]:
    if counter.note is not None:
        yield counter.note
    for finding in found.findings:
        if finding.severity == Severity.WARNING:
            yield f"{finding.kind}: {finding.hint}"


def _refuse_rows(found: Validation, store: Path, rules: str, *, side: str) -> None:
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
