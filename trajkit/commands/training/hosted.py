"""Train at a service: nothing is sent or paid for before the user agrees to the plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit._core.output.console import Meter, count, is_open, talk
from trajkit._core.settings import project
from trajkit.commands.options.request import nested, picked
from trajkit.commands.training.launch import carry_out, data_lines, forget, is_under_way
from trajkit.commands.training.sides import learned_by, sides, unless_used
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.options.training import HostedOptions, TrainingOptions
    from trajkit.commands.options.types import StoreLike
    from trajkit.training.hosted.prepare import Prepared
    from trajkit.training.hosted.remote import Estimate
    from trajkit.training.hosted.service import Service
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs

    class _Options(HostedOptions, TrainingOptions, total=False):
        train: StoreLike | None


_CENT = 0.01


def train_at(method: str, target: str, options: _Options, names: Iterable[str]) -> TuneJob:
    """Plan a job at a service, ask, create it and wait for it.

    Args:
        method: `sft` or `dpo`.
        target: The service, such as `together`.
        options: The options of the command.
        names: The options that are the service's own hyperparameters.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The data leaks, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    from trajkit.formats.validation.prices import load_prices
    from trajkit.training.hosted.prepare import HostedRequest, prepare
    from trajkit.training.hosted.service import connect
    from trajkit.training.runs import Runs

    runs = Runs(Path(options["runs"]))
    service = connect(target, picked(options, ("profile", "base_url", "account")))
    base = options["model"] or _default_model(target, service)
    prices = None if options["prices"] is None else load_prices(Path(options["prices"]))
    data = picked(options, ("val", "val_fraction", "train_function"))
    with unless_used(runs) as made:
        chosen = sides(
            method,
            learned_by(method, options["train"]),
            data.get("val"),
            data.get("val_fraction", 0),
            made=made,
            is_of_one_function=method == "sft",
            function=data.get("train_function"),
        )
        about = {
            "base": base,
            "train": chosen.train,
            "validation": chosen.validation,
            "recipe": nested(options["set"], picked(options, names)),
        }
        asked = HostedRequest(method=method, **picked(options, HostedRequest.model_fields) | about)
        with Meter() as meter:
            prepared = prepare(
                asked,
                service,
                runs,
                name=options["name"],
                prices=prices,
                is_dry_run=options["dry_run"],
                on_progress=meter.show,
            )
        if not (is_open() or options["dry_run"] or options["yes"] or is_under_way(prepared.job)):
            forget(prepared, runs)
            raise RequestError(
                f"this sends rows to {service.where}, and the job costs money",
                hint="yes=True confirms it, dry_run=True only shows the plan",
            )
        return carry_out(
            prepared,
            runs,
            options,
            plan=_plan(prepared, service),
            question="Send the rows and pay for the job?",
            nothing="nothing was sent",
            start=_start,
        )


def _default_model(target: str, service: Service) -> str:
    """The model of `trajkit.toml` if it is of this service, else the usual one of its profile.

    Raises:
        RequestError: There is neither.
    """
    named = project().model or ""
    if named.startswith(f"{target}::"):
        return named.removeprefix(f"{target}::")
    usual: str | None = getattr(service, "usual_model", None)
    if usual is None:
        raise RequestError(
            "no model is given", hint=f'--model NAME, or model = "{target}::NAME" in trajkit.toml'
        )
    return usual


def _start(runs: Runs, job_id: str) -> TuneJob:
    from trajkit.training.jobs import start

    try:
        with Meter() as meter:
            return start(runs, job_id, on_progress=meter.show, on_message=meter.say)
    except KeyboardInterrupt:
        talk(f"job {job_id} may not be created yet: `trajkit jobs resume {job_id}` continues it")
        raise


def _plan(prepared: Prepared, service: Service) -> Iterator[str]:
    from trajkit.training.hosted.remote import NOT_THE_SERVICES, Remote

    job = prepared.job
    if not prepared.is_new:
        again = "; it is created and paid for again" if job.status in ("failed", "cancelled") else ""
        yield f"job {job.job_id} is the same: {job.status}{again}"
    yield from data_lines(job, prepared.leak, row="row", learned="learned")
    yield f"model     {job.base} at {service.where}"
    recipe = [
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in job.recipe.items()
        if name not in NOT_THE_SERVICES and value not in (None, {}, [])
    ]
    yield f"recipe    {', '.join(recipe) or 'the defaults of the service'}"
    yield from _price(Remote.of(job).estimate, prepared)
    for note in prepared.notes:
        yield f"note      {note}"


def _price(estimate: Estimate, prepared: Prepared) -> Iterator[str]:
    if estimate.n_trained_tokens is None or estimate.n_epochs is None:
        yield "tokens    as many as the rows have, for each epoch that the service chooses"
    else:
        by = "the characters" if estimate.counted_by == "estimate" else estimate.counted_by
        about = "" if estimate.is_exact else f", an estimate by {by}"
        yield (
            f"tokens    {count(estimate.n_trained_tokens)} to pay for, in"
            f" {estimate.n_epochs:g} epoch{'' if estimate.n_epochs == 1 else 's'}{about}"
        )
    if estimate.cost_usd is None:
        yield "price     unknown"
        return
    cost = "less than 0.01" if estimate.cost_usd < _CENT else f"{estimate.cost_usd:,.2f}"
    rate = f"{estimate.usd_per_million_tokens:g} USD for a million tokens"
    as_of = prepared.facts.price_as_of
    yield f"price     {cost} USD ({rate}{'' if as_of is None else f', prices of {as_of}'})"
