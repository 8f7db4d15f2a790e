"""What every command that tunes at a service has in common: options, the plan, the question, the waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli import training
from trajkit.cli.launch import carry_out
from trajkit.cli.option import Command, adding, overlong_option
from trajkit.cli.preference import LAST_PAIRS, pair_sides
from trajkit.cli.settings import settings_option
from trajkit.cli.train_function import function_option, one_function

if TYPE_CHECKING:
    from trajkit.training.hosted.prepare import Prepared
    from trajkit.training.hosted.remote import Estimate
    from trajkit.training.hosted.service import Service
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs

_CENT = 0.01


pay_options = adding(
    settings_option(
        "--set", "more", "Anything else that the service takes, by its name there; may be repeated."
    ),
    click.option("--max-length", type=int, help="Most tokens of a row.  [default: the model's own limit]"),
    overlong_option,
    click.option("--tokenizer", metavar="NAME", help="Count with this one, as in `trajkit validate`."),
    click.option(
        "--prices",
        "prices_file",
        type=click.Path(path_type=Path),
        help="A YAML file with prices and dates of your own, as in `trajkit tokens`.",
    ),
    training.job_options,
)
"""What does not depend on the service, nor on what is learned: `--set`, limits, prices, the job."""

hosted_options = adding(
    training.side_options(picks_best=False), function_option, training.row_options, pay_options
)
"""Every option of a supervised fine-tuning that does not depend on the service; its own stand above."""

pair_options = training.side_options("PAIRS", last=LAST_PAIRS, cut_by="group", picks_best=False)
"""What is learned by preference at a service, and what measures it."""


def model_option(else_of: str = "trajkit.toml") -> Callable[[Command], Command]:
    """`--model`, as `base`.

    Args:
        else_of: Where the model comes from without it.
    """
    return click.option(
        "--model", "base", metavar="NAME", help=f"The model to start from.  [default: of {else_of}]"
    )


def train_hosted(
    service: Service, base: str, given: Mapping[str, Any], asked: dict[str, Any], *, method: str = "sft"
) -> int:
    """Show the plan, ask, start, wait.

    Args:
        service: Who trains.
        base: The model.
        given: The recipe, by the service's names; None where an option was not given.
        asked: What `hosted_options` read; for `dpo`, `preference.pair_sides` and `pay_options`.
        method: `sft` or `dpo`.
    """
    from trajkit.commands.request import nested
    from trajkit.commands.sides import unless_used
    from trajkit.commands.started import hosted_request
    from trajkit.formats.validation.prices import load_prices
    from trajkit.training.hosted.prepare import prepare
    from trajkit.training.runs import Runs

    runs = Runs(asked["runs_folder"])
    recipe = {name: value for name, value in given.items() if value is not None}
    with unless_used(runs) as made:
        sides = (
            training.sides(asked, made, one_function(asked))
            if method == "sft"
            else pair_sides(method, asked, made)
        )
        request = hosted_request(method, base, nested(asked["more"], recipe, read=_value), sides, asked)
        with console.Meter() as meter:
            prepared = prepare(
                request,
                service,
                runs,
                name=asked["name"],
                prices=None if asked["prices_file"] is None else load_prices(asked["prices_file"]),
                is_dry_run=asked["dry_run"],
                on_progress=meter.show,
            )
        return carry_out(
            prepared,
            runs,
            asked,
            plan=_plan(prepared, service),
            start=_started,
            question="Send the rows and pay for the job?",
            nothing="nothing was sent",
        )


def _value(typed: str) -> Any:
    """What was typed, as JSON where it is some: only the service knows what its fields are."""
    try:
        return json.loads(typed)
    except ValueError:
        return typed


def _started(runs: Runs, job_id: str) -> TuneJob:
    from trajkit.training.jobs import start

    try:
        with console.Meter() as meter:
            return start(runs, job_id, on_progress=meter.show, on_message=meter.say)
    except KeyboardInterrupt:
        console.talk(f"job {job_id} may not be created yet: `trajkit jobs resume {job_id}` goes on with it")
        raise


def _plan(prepared: Prepared, service: Service) -> Iterator[str]:
    from trajkit.training.hosted.remote import Remote

    job = prepared.job
    if not prepared.is_new:
        again = "; it is created anew, and paid for" if job.status in ("failed", "cancelled") else ""
        yield f"job {job.job_id} is the same: {job.status}{again}"
    yield from training.side_lines(job)
    yield training.leak_line(prepared.leak)
    yield f"model     {job.base} at {service.where}"
    rows = ("rows", "allow_leak")
    yield f"recipe    {', '.join(_words(job.recipe, leave_out=rows)) or 'the defaults of the service'}"
    yield from _price(Remote.of(job).estimate, prepared)
    for note in prepared.notes:
        yield f"note      {note}"


def _words(recipe: Mapping[str, Any], leave_out: tuple[str, ...]) -> Iterator[str]:
    for name, value in recipe.items():
        if name not in leave_out and value not in (None, {}, []):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{name} {text}"


def _price(estimate: Estimate, prepared: Prepared) -> Iterator[str]:
    if estimate.n_trained_tokens is None or estimate.n_epochs is None:
        yield "tokens    as many as the rows have, for each epoch that the service chooses"
    else:
        by = "the characters" if estimate.counted_by == "estimate" else estimate.counted_by
        about = "" if estimate.is_exact else f", an estimate by {by}"
        yield (
            f"tokens    {console.count(estimate.n_trained_tokens)} to pay for, in"
            f" {estimate.n_epochs:g} epoch{'' if estimate.n_epochs == 1 else 's'}{about}"
        )
    if estimate.cost_usd is None:
        yield "price     unknown"
        return
    cost = "less than 0.01" if estimate.cost_usd < _CENT else f"{estimate.cost_usd:,.2f}"
    rate = f"{estimate.usd_per_million_tokens:g} USD for a million tokens"
    as_of = prepared.facts.price_as_of
    yield f"price     {cost} USD ({rate}{'' if as_of is None else f', prices of {as_of}'})"
