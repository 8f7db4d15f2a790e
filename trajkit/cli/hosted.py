"""What every command that tunes at a service has in common: options, the plan, the question, the waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trajkit._settings import project, remember
from trajkit.cli import output, training
from trajkit.cli.jobs import Follower, print_job
from trajkit.cli.page import visible
from trajkit.cli.settings import settings_option
from trajkit.cli.train_function import function_option, of_functions
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.targets.hosted.prepare import HostedRequest, Prepared
    from trajkit.targets.hosted.remote import Estimate
    from trajkit.targets.hosted.service import Service
    from trajkit.targets.job import TuneJob
    from trajkit.targets.runs import Runs

Command = TypeVar("Command", bound=Callable[..., Any])

_CENT = 0.01


def hosted_options(command: Command) -> Command:
    """Add every option that does not depend on the service; its own stand above, with `--model`."""
    for option in (pay_options, training.row_options, function_option, training.store_options):
        command = option(command)  # click shows the last applied first
    return command


def pay_options(command: Command) -> Command:
    """Add those of them that do not say what is learned: `--set`, limits, prices, the job."""
    for option in reversed(
        (
            settings_option(
                "--set", "more", "Anything else that the service takes, by its name there; may be repeated."
            ),
            click.option(
                "--max-length", type=int, help="Most tokens of a row.  [default: the model's own limit]"
            ),
            click.option(
                "--overlong",
                type=click.Choice(["error", "drop", "trim-history"]),
                default="error",
                show_default=True,
                help="What becomes of longer rows.",
            ),
            click.option(
                "--tokenizer", metavar="NAME", help="Count with this one, as in `trajkit validate`."
            ),
            click.option(
                "--prices",
                "prices_file",
                type=click.Path(path_type=Path),
                help="A YAML file with prices and dates of your own, as in `trajkit tokens`.",
            ),
            training.job_options,
        )
    ):
        command = option(command)
    return command


def default_model(prefix: str, usual: str | None) -> str:
    """The model of `trajkit.toml` where it is of this service, else the usual one.

    Args:
        prefix: The gateway's word for the service, such as `openai`.
        usual: None where there is none.

    Raises:
        RequestError: There is neither.
    """
    named = project().model or ""
    if named.startswith(f"{prefix}::"):
        return named.removeprefix(f"{prefix}::")
    if usual is None:
        raise RequestError(
            "which model is tuned?", hint=f'--model NAME, or model = "{prefix}::NAME" in trajkit.toml'
        )
    return usual


def typed_settings(more: Mapping[str, str]) -> dict[str, Any]:
    """What `--set` gave, with `a.b=c` as the field b of a, and JSON where a value is some."""
    found: dict[str, Any] = {}
    for path, text in more.items():
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        place, names = found, path.split(".")
        for name in names[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise RequestError(f"--set {path}: {name} is no group")
        place[names[-1]] = value
    return found


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
    from trajkit.targets.hosted.prepare import prepare
    from trajkit.targets.runs import Runs
    from trajkit.validation.prices import load_prices

    runs = Runs(asked["runs_folder"])
    recipe = {name: value for name, value in given.items() if value is not None}
    request = _request(method, base, recipe | typed_settings(asked["more"]), asked)
    with output.Meter() as meter:
        prepared = prepare(
            request,
            service,
            runs,
            name=asked["name"],
            prices=None if asked["prices_file"] is None else load_prices(asked["prices_file"]),
            is_dry_run=asked["dry_run"],
            on_progress=meter.show,
        )
    for line in _plan(prepared, service):
        output.talk(line)
    job_id = prepared.job.job_id
    if asked["dry_run"]:
        if prepared.is_new:
            runs.remove(job_id)
        output.talk("dry run: nothing was sent")
        return 0
    if prepared.job.status not in ("running", "succeeded"):
        _ask(prepared, runs, yes=asked["yes"])
    remember("last_job", {"runs": str(runs.folder.absolute()), "job_id": job_id})
    job = _started(runs, job_id)
    if not asked["detach"]:
        job = Follower(runs, job_id, None).wait()
    print_job(runs, job, as_json=asked["as_json"])
    return 1 if job.status in ("failed", "cancelled") else 0


def _request(method: str, base: str, recipe: dict[str, Any], asked: dict[str, Any]) -> HostedRequest:
    from trajkit.cli.preference import pair_sides
    from trajkit.targets.hosted.prepare import HostedRequest

    found = training.sides(of_functions(asked)) if method == "sft" else pair_sides(method, asked)
    train, validation = found
    about = {name: asked[name] for name in ("unit",) if name in asked}
    return HostedRequest(
        method=method,
        base=base,
        train=train,
        validation=validation,
        recipe=recipe,
        **about,
        thoughts=asked["thoughts"],
        overlong=asked["overlong"],
        max_length=asked["max_length"],
        tokenizer=asked["tokenizer"],
        allow_leak=asked["allow_leak"],
    )


def _ask(prepared: Prepared, runs: Runs, *, yes: bool) -> None:
    """Nothing is sent and paid for before somebody said yes; a job that nobody wanted is forgotten."""
    try:
        training.confirm("Send the rows and pay for the job?", yes=yes)
    except (click.exceptions.Exit, click.Abort, RequestError):
        if prepared.is_new:
            runs.remove(prepared.job.job_id)
        raise


def _started(runs: Runs, job_id: str) -> TuneJob:
    from trajkit.targets.jobs import start

    try:
        with output.Meter() as meter:
            return start(runs, job_id, on_progress=meter.show)
    except KeyboardInterrupt:
        output.talk(f"job {job_id} may not be created yet: `trajkit jobs resume {job_id}` goes on with it")
        raise


def _plan(prepared: Prepared, service: Service) -> Iterator[str]:
    from trajkit.targets.hosted.remote import Remote

    job = prepared.job
    if not prepared.is_new:
        again = "; it is created anew, and paid for" if job.status in ("failed", "cancelled") else ""
        yield f"job {job.job_id} is the same: {job.status}{again}"
    yield from training.side_lines(job)
    yield training.leak_line(prepared.leak)
    yield f"model     {visible(job.base)} at {visible(service.where)}"
    rows = ("rows", "allow_leak")
    yield f"recipe    {', '.join(_words(job.recipe, leave_out=rows)) or 'the defaults of the service'}"
    yield from _price(Remote.of(job).estimate, prepared)
    for note in prepared.notes:
        yield f"note      {visible(note)}"


def _words(recipe: Mapping[str, Any], leave_out: tuple[str, ...]) -> Iterator[str]:
    for name, value in recipe.items():
        if name not in leave_out and value not in (None, {}, []):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield visible(f"{name} {text}")


def _price(estimate: Estimate, prepared: Prepared) -> Iterator[str]:
    if estimate.n_trained_tokens is None or estimate.n_epochs is None:
        yield "tokens    as many as the rows have, for each epoch that the service chooses"
    else:
        by = "the characters" if estimate.counted_by == "estimate" else visible(estimate.counted_by)
        about = "" if estimate.is_exact else f", an estimate by {by}"
        yield (
            f"tokens    {output.count(estimate.n_trained_tokens)} to pay for, in"
            f" {estimate.n_epochs:g} epoch{'' if estimate.n_epochs == 1 else 's'}{about}"
        )
    if estimate.cost_usd is None:
        yield "price     unknown"
        return
    cost = "less than 0.01" if estimate.cost_usd < _CENT else f"{estimate.cost_usd:,.2f}"
    rate = f"{estimate.usd_per_million_tokens:g} USD for a million tokens"
    as_of = prepared.facts.price_as_of
    yield f"price     {cost} USD ({rate}{'' if as_of is None else f', prices of {as_of}'})"
