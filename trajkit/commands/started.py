"""A prepared training is started and waited for, or only shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trajkit._core.settings import project, remember
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.sides import Sides
    from trajkit.training.hosted.prepare import HostedRequest
    from trajkit.training.hosted.prepare import Prepared as PreparedHosted
    from trajkit.training.hosted.service import Service
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs


class Prepared(Protocol):
    """A job that can be started, wherever it runs."""

    @property
    def job(self) -> TuneJob:
        """The job, saved."""

    @property
    def is_new(self) -> bool:
        """False when the same job was there already: that is the one."""


def carried_out(
    prepared: Prepared,
    runs: Runs,
    *,
    dry_run: bool,
    detach: bool,
    start: Callable[[Runs, str], TuneJob],
) -> TuneJob:
    """Start a job and wait for its end; how it ended is told, not raised.

    Args:
        prepared: The job.
        runs: Where it is kept.
        dry_run: Forget it instead.
        detach: Do not wait.
        start: Starts it; one that runs or has succeeded is left alone.
    """
    from trajkit.training.jobs import follow

    if dry_run:
        forget(prepared, runs)
        return prepared.job
    job_id = prepared.job.job_id
    remember("last_job", {"runs": str(runs.folder.absolute()), "job_id": job_id})
    job = start(runs, job_id)
    return job if detach else follow(runs, job_id)


def is_under_way(job: TuneJob) -> bool:
    """Whether nothing is left to agree to; a training here whose process is gone would start again."""
    is_gone = job.process is not None and not job.process.is_running
    return job.status == "succeeded" or (job.status == "running" and not is_gone)


def forget(prepared: Prepared, runs: Runs) -> None:
    """Remove a job that nobody wanted in the end; one that was there before is kept."""
    if prepared.is_new:
        runs.remove(prepared.job.job_id)


def here(recipe: Any) -> Callable[[Runs, str], TuneJob]:
    """What starts a prepared job here, and first takes note of what is asked of one that is there already.

    Args:
        recipe: As it is asked for now.
    """
    from trajkit.training.local.finish import take_wishes
    from trajkit.training.local.launch import start

    def begin(runs: Runs, job_id: str) -> TuneJob:
        take_wishes(runs, job_id, recipe)
        return start(runs, job_id)

    return begin


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


def hosted_request(
    method: str, base: str, recipe: Mapping[str, Any], sides: Sides, asked: Mapping[str, Any]
) -> HostedRequest:
    """What a training at a service is asked for.

    Args:
        method: `sft` or `dpo`.
        base: The model.
        recipe: Options of the service, by its own names.
        sides: What is learned, and what measures.
        asked: What becomes a row, limits and leaks.
    """
    from trajkit.training.hosted.prepare import HostedRequest

    about = {name: asked[name] for name in ("unit",) if name in asked}
    return HostedRequest(
        method=method,
        base=base,
        train=sides.train,
        validation=sides.validation,
        recipe=dict(recipe),
        **about,
        thoughts=asked["thoughts"],
        overlong=asked["overlong"],
        max_length=asked["max_length"],
        tokenizer=asked["tokenizer"],
        allow_leak=asked["allow_leak"],
    )


def train_hosted(
    service: Service,
    base: str,
    recipe: Mapping[str, Any],
    sides: Sides,
    asked: Mapping[str, Any],
    *,
    method: str = "sft",
) -> TuneJob:
    """Prepare a training at a service, and begin it where somebody said yes.

    Args:
        service: Who trains.
        base: The model.
        recipe: Options of the service, by its own names; None where one was not given.
        sides: What is learned, and what measures.
        asked: The other options, by their names.
        method: `sft` or `dpo`.

    Raises:
        RequestError: The job would be paid for, and nobody said yes.
    """
    from trajkit.commands.request import as_it_is, nested
    from trajkit.formats.validation.prices import load_prices
    from trajkit.training.hosted.prepare import prepare
    from trajkit.training.jobs import start
    from trajkit.training.runs import Runs

    runs = Runs(Path(asked["runs"]))
    given = {name: value for name, value in recipe.items() if value is not None}
    whole = nested(asked["set"] or {}, given, read=as_it_is)
    prepared: PreparedHosted = prepare(
        hosted_request(method, base, whole, sides, asked),
        service,
        runs,
        name=asked["name"],
        prices=None if asked["prices"] is None else load_prices(Path(asked["prices"])),
        is_dry_run=asked["dry_run"],
    )
    if not (asked["dry_run"] or asked["yes"] or is_under_way(prepared.job)):
        forget(prepared, runs)
        raise RequestError(
            f"this sends rows to {service.where}, and the job is paid for",
            hint="--yes does that, --dry-run shows the plan alone",
        )
    return carried_out(prepared, runs, dry_run=asked["dry_run"], detach=asked["detach"], start=start)
