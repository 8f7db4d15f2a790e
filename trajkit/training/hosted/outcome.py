"""Record a service's answers about a job: events, checkpoints, results, and hints for failures."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trajkit._core.outside import name_from_outside
from trajkit.errors import DataError, ServiceError
from trajkit.training.hosted.answer import way_out
from trajkit.training.hosted.prepare import TRAIN, VALIDATION, uploaded_rows
from trajkit.training.hosted.remote import Remote
from trajkit.training.hosted.service import MOST_EVENTS, Event, Service, State
from trajkit.training.job import JobStatus, TuneJob
from trajkit.training.runs import Runs

RESULTS = "results"
_LONGEST_MESSAGE = 1_000
_FULL = "trajkit-full"


def take(runs: Runs, job_id: str, service: Service, state: State) -> TuneJob:
    """Record the state and the events of a job; when it has ended, fetch its results.

    The caller holds the job's lock.

    Raises:
        ServiceError: The service did not return the events. Results that cannot be fetched are no error; the
            next refresh fetches them.
    """
    job = runs.load(job_id)
    state, problems = _with_names(state)
    remote = Remote.of(job).model_copy(update={"state": state})
    if job.status == JobStatus.PREPARED:  # record the id before any further request
        job = runs.save(remote.put_into(job, status=JobStatus.RUNNING, error=None))
    _take_events(runs, job_id, service, state, problems)
    if not state.status.is_final:
        return runs.save(remote.put_into(job, status=JobStatus.RUNNING))
    remote = remote.model_copy(update={"checkpoints": tuple(service.checkpoints(state.remote_id))})
    update: dict[str, Any] = {"status": state.status}
    if job.finished_at is None:
        update["finished_at"] = datetime.now(UTC)
    if state.status == JobStatus.SUCCEEDED:
        remote = _fetched(runs, job, remote, service)
        update["result"] = _result(runs, job, remote, state)
    else:
        remote = without_files(remote, service)
        update["error"] = _why(runs, job, remote, state, service)
    return runs.save(remote.put_into(job, **update))


def _with_names(state: State) -> tuple[State, list[Event]]:
    """Return the state with the result files whose ids are valid file names, and an event for each other."""
    fit, problems = [], []
    for file_id in state.result_files:
        try:
            fit.append(name_from_outside(file_id, what="the name of a result file"))
        except DataError as error:
            words = f"a result file is not fetched: {error.message}"
            name = f"trajkit-{hashlib.sha256(file_id.encode()).hexdigest()[:16]}"
            problems.append(Event(event_id=name, level="warn", message=words))
    return state.model_copy(update={"result_files": tuple(fit)}), problems


def _take_events(runs: Runs, job_id: str, service: Service, state: State, more: Sequence[Event]) -> None:
    known = {str(event["id"]) for event in runs.events(job_id) if "id" in event}
    new = {event.event_id: event for event in (*service.events(state.remote_id, known), *more)}
    fresh = [event for name, event in new.items() if name not in known]
    if _FULL in known:
        return
    room = MOST_EVENTS - len(known)
    for event in fresh[:room]:
        runs.add_event(job_id, _record(event))
    if len(fresh) > room:
        words = f"the service sent more than {MOST_EVENTS:,} events: further ones are not recorded"
        runs.add_event(job_id, _record(Event(event_id=_FULL, level="warn", message=words)))


def _record(event: Event) -> dict[str, Any]:
    """Return an event in the form of the job's record."""
    record: dict[str, Any] = {"kind": "message" if event.step is None else "step", "id": event.event_id}
    if event.at is not None:
        record["at"] = event.at.isoformat()
    record |= {"level": event.level, "message": event.message[:_LONGEST_MESSAGE]}
    return record | (event.step._asdict() if event.step is not None else {})


def _fetched(runs: Runs, job: TuneJob, remote: Remote, service: Service) -> Remote:
    folder = runs.path(job.job_id) / RESULTS
    for file_id in remote.state.result_files if remote.state is not None else ():
        if file_id in remote.fetched:
            continue
        with contextlib.suppress(ServiceError):
            folder.mkdir(exist_ok=True)
            service.fetch(file_id, folder / f"{file_id}.csv")
            remote = remote.model_copy(update={"fetched": (*remote.fetched, file_id)})
    return remote


def without_files(remote: Remote, service: Service) -> Remote:
    """Delete the uploaded files; an id that could not be deleted stays recorded."""
    for side in (TRAIN, VALIDATION):
        if (file_id := getattr(remote, f"{side}_file")) is not None:
            with contextlib.suppress(ServiceError):
                service.delete_file(file_id)
                remote = remote.model_copy(update={f"{side}_file": None})
    return remote


def still_there(remote: Remote) -> str | None:
    """Name the files that are still uploaded; None when there are none."""
    return f"still uploaded there: {', '.join(remote.files)}" if remote.files else None


def _result(runs: Runs, job: TuneJob, remote: Remote, state: State) -> dict[str, Any]:
    steps = [event for event in runs.events(job.job_id) if event["kind"] == "step"]
    losses = [event["loss"] for event in steps if event["loss"] is not None]
    validations = [event["eval_loss"] for event in steps if event["eval_loss"] is not None]
    price = remote.estimate.usd_per_million_tokens
    cost_usd = state.cost_usd
    if cost_usd is None and price is not None and state.n_trained_tokens is not None:
        cost_usd = state.n_trained_tokens / 1e6 * price
    found = {
        "model": state.model,
        "n_steps": steps[-1]["n_done"] if steps else None,
        "train_loss": losses[-1] if losses else None,
        "eval_loss": validations[-1] if validations else None,
        "n_trained_tokens": state.n_trained_tokens,
        "cost_usd": cost_usd,
    }
    return {name: value for name, value in found.items() if value is not None}


def _why(runs: Runs, job: TuneJob, remote: Remote, state: State, service: Service) -> str:
    """Explain why there is no model, with a hint."""
    if state.status == JobStatus.CANCELLED:
        said = state.error or "it was cancelled"
    else:
        said = state.error or "the service gives no reason"
        if state.error_code and state.error_code not in said:
            said = f"{state.error_code}: {said}"
    rows = uploaded_rows(runs.path(job.job_id), TRAIN)
    hints = [
        way_out(state.error_code, state.error or "", rows=rows, rules=service.rules),
        still_there(remote),
    ]
    hint = "; ".join(words for words in hints if words)
    return f"{said} ({hint})" if hint else said
