"""Run a recipe step by step. Finished steps are not repeated: the same command resumes the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from trajkit._core.lock import locked
from trajkit._core.output.console import line, plural, result_text
from trajkit._core.output.result import Result
from trajkit._core.secrets import hidden
from trajkit.commands.recipe.folder import (
    LOCK,
    RunFolder,
    StepRecord,
    StepStatus,
    digest_of,
    input_path,
    versions,
)
from trajkit.commands.recipe.load import Loaded
from trajkit.commands.recipe.steps import PlannedStep
from trajkit.commands.recipe.verb import Verb, call
from trajkit.errors import RequestError, StoreError, TrajkitError
from trajkit.training.runs import Runs

Call: TypeAlias = Callable[[Verb, Sequence[str]], int]
"""Runs a command with its arguments, and returns its exit code."""

_GOES_ON = frozenset({"archive"})
"""Commands that resume what a killed one left there; others leave nothing, or something complete."""

_AGAIN = frozenset({"up"})
"""Commands that are repeated when a run is resumed: what they started may be gone."""


class Failed(TrajkitError):
    """A step of a recipe failed."""


@dataclass(frozen=True)
class Report(Result):
    """The outcome of a run."""

    records: tuple[StepRecord, ...] = ()
    """Records of the started steps, in order; none after a dry run."""
    failed: StepRecord | None = None
    """The one that failed, after which nothing ran; None when all are done."""
    folder: Path = Path()
    """The run folder."""
    recipe: str = ""
    """Name of the recipe."""
    again: str = ""
    """The command that resumes the run."""
    seconds: float = field(default=0.0, compare=False)
    """How long it took."""

    @property
    def failure(self) -> Failed | None:
        """The error with which the command line ends; None when all steps are done."""
        if self.failed is None:
            return None
        goes_on = f"`{self.again}` continues there"
        error = Failed(
            f"step {self.failed.name} failed: {self.failed.error}",
            hint=f"{self.failed.hint}; then {goes_on}" if self.failed.hint else goes_on,
        )
        error.exit_code = self.failed.exit_code or 1
        return error

    def to_json(self) -> dict[str, Any]:
        """The run folder and the record of each step."""
        steps = [record.model_dump(mode="json") for record in self.records]
        return {"run": str(self.folder), "recipe": self.recipe, "steps": steps}

    def __str__(self) -> str:
        if self.failed is not None:
            return line(f"{self.folder}  step {self.failed.name} failed: {self.failed.error}")
        done = f"{plural(len(self.records), 'step')} done  {self.seconds:.0f} s"
        return line(f"{self.folder}  {done}") if self.records else ""

    def print_text(self) -> None:
        """Print what was done; for a failed step the error is printed."""
        if self.records and self.failed is None:
            result_text(str(self))


def states(steps: Sequence[PlannedStep], folder: RunFolder) -> dict[str, StepStatus | None]:
    """The state of each step; None for one that was never started.

    Raises:
        DataError: A record is damaged.
    """
    records = {step.name: folder.record(step.name) for step in steps} if folder.is_begun else {}
    return {step.name: found.status if (found := records.get(step.name)) else None for step in steps}


def check_same(loaded: Loaded, folder: RunFolder) -> None:
    """Raise unless the folder is free, or has a run of the same recipe.

    Raises:
        RequestError: It is another recipe's, or something else; the message shows what differs.
    """
    folder.refuse_other()
    if folder.is_begun and (found := folder.differences(loaded)):
        raise RequestError(
            f"{folder.path} is a run of another recipe: {'; '.join(found)}",
            hint="choose another -o, or give the recipe as it was",
        )


def run(
    loaded: Loaded,
    steps: Sequence[PlannedStep],
    folder: RunFolder,
    *,
    agreed: bool = False,
    on_step: Callable[[int, PlannedStep, bool], None] = lambda number, step, is_done: None,
    call: Call = call,
) -> Report:
    """Run the steps that are not done.

    Args:
        loaded: The recipe.
        steps: What `trajkit.commands.recipe.steps.plan` made of it.
        folder: The run folder; created if missing.
        agreed: Whether steps that would ask are confirmed.
        on_step: Called for every step before it runs, with its number from 1 and whether it is done already.
        call: Runs a command.

    Raises:
        RequestError: Another recipe ran there, another process runs this one, or what a step read changed.
        StoreError: The output of a finished step has changed.
        KeyboardInterrupt: It was stopped; the record shows in which step.
    """
    check_same(loaded, folder)
    if not folder.is_begun:
        folder.begin(loaded)
    with locked(folder.path / LOCK) as holder:
        if holder is not None:
            raise RequestError(f"{holder} runs {folder.path} already")
        return _run(steps, folder, agreed, on_step, call)


def _run(
    steps: Sequence[PlannedStep],
    folder: RunFolder,
    agreed: bool,
    on_step: Callable[[int, PlannedStep, bool], None],
    call: Call,
) -> Report:
    left: dict[str, str] = dict(folder.facts().files)
    records: list[StepRecord] = []
    is_whole = all(status == StepStatus.DONE for status in states(steps, folder).values())
    for number, step in enumerate(steps, start=1):
        inputs = _inputs(step, left)
        found = folder.record(step.name)
        is_done = found is not None and _is_done(found, step, inputs, folder)
        if is_done and step.verb.name in _AGAIN and not is_whole:
            is_done = False
        on_step(number, step, is_done)
        if not is_done or found is None:
            found = _called(step, inputs, folder, agreed, call)
        records.append(found)
        if found.status != StepStatus.DONE:
            break
        # a step without output is identified by when it was done
        left[step.name] = found.output_digest or str(found.finished_at)
    failed = next((each for each in records if each.status != StepStatus.DONE), None)
    return Report(tuple(records), failed, folder.path, folder.facts().recipe)


def _inputs(step: PlannedStep, left: dict[str, str]) -> dict[str, str]:
    """Digests of what a step reads: outputs of earlier steps, and what its options name."""
    found = {name: left[name] for name in step.references}
    for text in step.texts:
        if (path := input_path(text)) is not None:
            found[text] = digest_of(path)
    return found


def _is_done(found: StepRecord, step: PlannedStep, inputs: dict[str, str], folder: RunFolder) -> bool:
    """Whether a step need not run; one that is done on other data, or whose output changed, is an error."""
    if found.status != StepStatus.DONE:
        return False
    for name in found.inputs.keys() | inputs.keys():
        if found.inputs.get(name) != inputs.get(name):
            raise RequestError(
                f"step {step.name} is done, and {name}, which it read, has changed since",
                hint="choose another -o for a new run",
            )
    if step.job is not None:
        return Runs(step.runs).path(step.job).exists()
    if step.output is None:
        return True
    if not step.output.exists():
        return False
    if digest_of(step.output) != found.output_digest:
        raise StoreError(
            f"{step.output} is no longer the output of step {step.name}",
            hint="remove it to repeat the step",
        )
    return True


def _called(
    step: PlannedStep, inputs: dict[str, str], folder: RunFolder, agreed: bool, call: Call
) -> StepRecord:
    record = StepRecord(
        name=step.name,
        verb=step.verb.name,
        arguments=step.arguments,
        inputs=inputs,
        output=step.job or (None if step.output is None else str(step.output.relative_to(folder.path))),
        status=StepStatus.RUNNING,
        versions=versions(),
        started_at=datetime.now(UTC),
    )
    _clear(step)
    folder.save(record)
    has_yes = step.verb.option("yes") is not None and (agreed or not step.asks)
    error = hint = None
    try:
        code = call(step.verb, ["--yes", *step.arguments] if has_yes else step.arguments)
    except KeyboardInterrupt:
        folder.save(_ended(record, StepStatus.STOPPED, exit_code=None))
        raise
    except TrajkitError as failure:
        code, error = failure.exit_code, hidden(failure.message)
        hint = failure.hint and hidden(failure.hint)
    if code:
        error = error or _error_of_job(step) or f"exit code {code}"
        record = _ended(record, StepStatus.FAILED, exit_code=code, error=error, hint=hint)
    else:
        record = _ended(record, StepStatus.DONE, exit_code=0, output_digest=_digest(step))
    folder.save(record)
    return record


def _clear(step: PlannedStep) -> None:
    """Remove the output of a killed step: it may be complete, but the run folder has no record of that."""
    if step.verb.name in _GOES_ON:
        return
    for path in step.leaves:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _digest(step: PlannedStep) -> str | None:
    """The digest of a step's output; for a job, the job's key."""
    if step.job is not None:
        return Runs(step.runs).load(step.job).key
    return digest_of(step.output) if step.output is not None and step.output.exists() else None


def _error_of_job(step: PlannedStep) -> str | None:
    """Why a job failed: its command prints it and ends with a code."""
    if step.job is None or not Runs(step.runs).path(step.job).exists():
        return None
    return Runs(step.runs).load(step.job).error


def _ended(record: StepRecord, status: StepStatus, **found: object) -> StepRecord:
    return record.model_copy(update={"status": status, "finished_at": datetime.now(UTC), **found})
