"""Count the tokens of a training file, and estimate the price or the time of tuning a model on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from trajkit._core.division import Division
from trajkit._core.lazy import need
from trajkit._core.output.console import count, line, plural
from trajkit._core.output.result import Result
from trajkit._core.samples import SAMPLE_PREFIX, pretrained
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ESTIMATE, Tokenizer, load_tokenizer
from trajkit.formats.validation.file import validate
from trajkit.formats.validation.loss import LossReport
from trajkit.formats.validation.prices import Prices, TunableModel
from trajkit.schema import Model

_CENT = 0.01
_SECONDS = 3.0
_TOKENS_PER_ROW = 256
_ROWS = 4


class TokenCount(Result, Model):
    """Tokens of a file, and their cost."""

    path: Path
    """The file."""
    model: str
    """The model to tune."""
    loss: LossReport
    """The tokens."""
    n_epochs: int
    """Number of passes over the file."""
    n_trained_tokens: int
    """Tokens that the service bills or the trainer reads: each row up to the limit, times the epochs."""
    n_learned_tokens: int
    """Tokens of these that carry loss."""
    cost_usd: float | None
    """Price; None if unknown, 0 for a model on this machine."""
    price_as_of: date | None
    """Date of that price."""
    price_sources: tuple[str, ...]
    """Sources of the price, and of the dates below."""
    last_job_on: date | None
    """Last day on which a job can be created."""
    shutdown_on: date | None
    """Day on which the model and those tuned from it end."""
    seconds: float | None
    """Expected time on this machine; None for a service, or if nothing was measured."""
    notes: tuple[str, ...]
    """Notes to read before spending money."""

    def __str__(self) -> str:
        parts = [f"{count(self.n_trained_tokens)} tokens in {plural(self.n_epochs, 'epoch')}"]
        if self.cost_usd:
            cost = f"{self.cost_usd:,.2f}" if self.cost_usd >= _CENT else "less than 0.01"
            parts.append(f"{cost} USD (prices of {self.price_as_of})")
        elif self.cost_usd is None:
            parts.append("price unknown")
        if self.seconds is not None:
            parts.append(f"about {_duration(self.seconds)} on this machine")
        return f"{self.loss}\n{line(f'{self.model}: ' + '  '.join(parts))}"


def count_tokens(
    path: Path,
    *,
    target: str,
    model: str,
    prices: Prices,
    n_epochs: int,
    tokenizer: str | None = None,
    max_length: int | None = None,
    measure: Callable[[str], float] | None = None,
    today: date,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
    division: Division | None = None,
) -> TokenCount:
    """Count a file for a model.

    Args:
        path: JSONL or Parquet.
        target: The target of the file, see `validate`; rows that it would refuse are not counted.
        model: A hosted model that `prices` knows, or a folder or an id of a model on this machine.
        prices: Facts about hosted models.
        n_epochs: Number of passes over the file.
        tokenizer: Name of a tokenizer; None for the model's own.
        max_length: Limit of tokens in a row; None for the model's own, if any.
        measure: Return the tokens that this machine trains per second on a model; None to estimate no time.
        today: Decides which dates are past.
        on_progress: Gets how many bytes are read, and how many there are.
        division: Count in several processes; None counts in this one.

    Raises:
        RequestError: The model is unknown and no tokenizer was named.
    """
    known = prices.find(model)
    counter, notes = _counter(model, known, tokenizer)
    limit = max_length or (known.max_tokens if known else None)
    found = validate(
        path,
        target=target,
        tokenizer=counter.name,
        max_length=limit,
        on_progress=on_progress,
        division=division,
    )
    if found.loss is None:
        raise RequestError(f"{path} was not counted")
    if found.n_errors:
        bound = "" if limit is None else f" --max-length {limit}"
        command = f"trajkit validate {path} --target {target} --tokenizer {counter.name}{bound}"
        notes.append(f"{plural(found.n_errors, 'error')}: `{command}` names them")
    is_here = known is None and (model.startswith(SAMPLE_PREFIX) or Path(model).is_dir())
    n_trained = found.loss.n_within * n_epochs
    return TokenCount(
        path=path,
        model=known.name if known else model,
        loss=found.loss,
        n_epochs=n_epochs,
        n_trained_tokens=n_trained,
        n_learned_tokens=found.loss.n_kept * n_epochs,
        cost_usd=_cost(known, n_trained, is_here=is_here),
        price_as_of=prices.as_of if known else None,
        price_sources=tuple(prices.sources.get(name, name) for name in known.sources) if known else (),
        last_job_on=known.last_job_on if known else None,
        shutdown_on=known.shutdown_on if known else None,
        seconds=n_trained / measure(model) if measure is not None and is_here else None,
        notes=(*notes, *_warnings(known, model, today, is_here=is_here), *found.loss.notes),
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _counter(model: str, known: TunableModel | None, tokenizer: str | None) -> tuple[Tokenizer, list[str]]:
    """Return the named tokenizer, or the model's own; an estimate if its vocabulary is not available."""
    if tokenizer is not None:
        return load_tokenizer(tokenizer), []
    if known is None:
        return load_tokenizer(model), []
    if known.encoding is None:
        return load_tokenizer(ESTIMATE), [f"the tokenizer of {known.name} is not public"]
    try:
        return load_tokenizer(f"tiktoken:{known.encoding}"), []
    except RequestError as error:
        return load_tokenizer(ESTIMATE), [f"{error}; {error.hint}" if error.hint else str(error)]


def _cost(known: TunableModel | None, n_tokens: int, *, is_here: bool) -> float | None:
    if is_here:
        return 0.0
    if known is None or known.usd_per_million_tokens is None:
        return None
    return n_tokens / 1e6 * known.usd_per_million_tokens


def _warnings(known: TunableModel | None, model: str, today: date, *, is_here: bool) -> list[str]:
    if known is None:
        return [] if is_here else [f"no price of {model!r} is known: give a file with --prices"]
    notes = []
    if known.usd_per_million_tokens is None:
        notes.append(f"no price of {known.name} is known: give a file with --prices")
    if known.shutdown_on is not None and known.shutdown_on <= today:
        notes.append(f"{known.name} was shut down on {known.shutdown_on}")
    elif known.last_job_on is not None and known.last_job_on < today:
        notes.append(f"no job on {known.name} can be created since {known.last_job_on}")
    elif known.shutdown_on is not None:
        notes.append(f"{known.name} and the models tuned from it end on {known.shutdown_on}")
    return notes


def trained_tokens_per_second(model: str) -> float:
    """Train a model for about three seconds on arbitrary tokens; nothing is kept.

    Args:
        model: The folder of a causal language model, or `sample:NAME`.

    Returns:
        Tokens per second, forward and backward, over all weights in 32 bits. LoRA takes about two thirds of
        the time.

    Raises:
        RequestError: The folder has no such model.
        MissingExtra: torch or transformers is not installed.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    try:
        learner: Any = pretrained(transformers.AutoModelForCausalLM, model, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise RequestError(f"no model in {model}: {str(error).splitlines()[0]}") from error
    learner.to("cuda" if torch.cuda.is_available() else "cpu").train()
    length = min(_TOKENS_PER_ROW, getattr(learner.config, "max_position_embeddings", _TOKENS_PER_ROW))
    rows = torch.zeros((_ROWS, length), dtype=torch.long, device=learner.device)
    _step(learner, rows)  # the first step allocates memory and compiles
    started, n_tokens = time.perf_counter(), 0
    while time.perf_counter() - started < _SECONDS:
        _step(learner, rows)
        n_tokens += rows.numel()
    return n_tokens / (time.perf_counter() - started)


def _step(learner: Any, rows: Any) -> None:
    learner(input_ids=rows, labels=rows).loss.backward()
    learner.zero_grad()
    if learner.device.type == "cuda":
        need("torch", extra="local").cuda.synchronize()
