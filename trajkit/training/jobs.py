"""Any job by its target: those on this machine, and those at a service."""

from __future__ import annotations

from collections.abc import Callable

from trajkit.errors import RequestError
from trajkit.training.job import TuneJob
from trajkit.training.runs import Runs
from trajkit.training.step import Step


def start(
    runs: Runs,
    job_id: str,
    *,
    on_progress: Callable[[str, int, int | None], None] = lambda what, n_done, n_total: None,
    on_message: Callable[[str], None] = lambda message: None,
) -> TuneJob:
    """Start a prepared job. One that runs already is left alone, and one that succeeded needs nothing.

    Args:
        runs: Where jobs are kept.
        job_id: Which.
        on_progress: Told what is being sent to a service, how far that is, and of how much.
        on_message: Told what a service takes long for.

    Raises:
        StackError: A training on this machine did not start.
        RequestError: A service may have the job already, without listing it.
        ServiceError: The service refused, or cannot be reached.
    """
    if _is_local(runs, job_id):
        from trajkit.training.local import launch

        return launch.start(runs, job_id)
    from trajkit.training.hosted import launch as hosted
    from trajkit.training.hosted.creation import Telling

    return hosted.start(runs, job_id, telling=Telling(on_progress, on_message))


def follow(
    runs: Runs,
    job_id: str,
    *,
    on_step: Callable[[Step], None] = lambda step: None,
    on_message: Callable[[str], None] = lambda message: None,
    timeout_s: float | None = None,
) -> TuneJob:
    """Wait until a job has ended. Whoever stops waiting (Ctrl-C) does not stop the job.

    Args:
        runs: Where jobs are kept.
        job_id: Which.
        on_step: Told of every loss, from the first one on.
        on_message: Told what a service says meanwhile.
        timeout_s: Seconds to wait; None for as long as it takes.

    Raises:
        TimeoutError: It has not ended by then.
        ServiceError: The service refused to tell.
    """
    if _is_local(runs, job_id):
        from trajkit.training.local import launch

        return launch.follow(runs, job_id, on_step=on_step, on_message=on_message, timeout_s=timeout_s)
    from trajkit.training.hosted import launch as hosted

    return hosted.follow(runs, job_id, on_step=on_step, on_message=on_message, timeout_s=timeout_s)


def cancel(runs: Runs, job_id: str) -> TuneJob:
    """End a job.

    Raises:
        RequestError: It has ended already.
        ServiceError: The service refused.
    """
    if _is_local(runs, job_id):
        from trajkit.training.local import launch

        return launch.cancel(runs, job_id)
    from trajkit.training.hosted import launch as hosted

    return hosted.cancel(runs, job_id)


def pause(runs: Runs, job_id: str) -> TuneJob:
    """Halt a job at a service that can; `resume` goes on with it.

    Raises:
        RequestError: It runs on this machine, or its service cannot.
        ServiceError: The service refused.
    """
    if _is_local(runs, job_id):
        raise RequestError(
            f"job {job_id} runs on this machine, where nothing is halted",
            hint="`trajkit jobs cancel` ends it, and `trajkit jobs resume` goes on from its last checkpoint",
        )
    from trajkit.training.hosted import launch as hosted

    return hosted.pause(runs, job_id)


def resume(
    runs: Runs,
    job_id: str,
    *,
    again: bool = False,
    on_message: Callable[[str], None] = lambda message: None,
) -> TuneJob:
    """Go on with a job: from the last checkpoint on this machine, or with one that was halted at a service.

    Args:
        runs: Where jobs are kept.
        job_id: Which.
        again: Create it even where its service may have it already, and be paid for twice.
        on_message: Told what a service takes long for.

    Raises:
        RequestError: It ended at a service: another one would be paid for again. Or the service may have it,
            without listing it, and `again` is not given.
        ServiceError: The service refused.
    """
    if _is_local(runs, job_id):
        from trajkit.training.local import launch

        return launch.start(runs, job_id)
    from trajkit.training.hosted import launch as hosted
    from trajkit.training.hosted.creation import Telling

    return hosted.resume(runs, job_id, telling=Telling(message=on_message), again=again)


def refreshed(runs: Runs, job_id: str) -> TuneJob:
    """A job as it is now. A service is asked for one that has not ended.

    Raises:
        ServiceError: The service refused to tell, or cannot be reached.
    """
    if _is_local(runs, job_id):
        from trajkit.training.local import launch

        return launch.refreshed(runs, job_id)
    from trajkit.training.hosted import launch as hosted

    return hosted.refreshed(runs, job_id)


def _is_local(runs: Runs, job_id: str) -> bool:
    return runs.load(job_id).is_here
