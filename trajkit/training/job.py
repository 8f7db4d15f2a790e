"""A training job: its plan, its data, its state and its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import Field, PrivateAttr

from trajkit._core.output.console import Cell, count, duration, line, plural, table_text
from trajkit._core.output.result import Result
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.stack.process import Process

if TYPE_CHECKING:
    from trajkit.curation.rows.conversion import Conversion


class Step(NamedTuple):
    """The progress of a training."""

    n_done: int
    """Steps of the optimizer, or iterations of play."""
    n_total: int | None
    """Total number of steps or iterations; None when unknown."""
    epoch: float | None
    """Passes over the rows; None when unknown."""
    loss: float | None
    """Mean loss of the learned tokens since the last report; None for a validation."""
    eval_loss: float | None
    """Validation loss; None if there was no validation."""
    learning_rate: float | None
    """Learning rate at this step; None when unknown."""
    words: str = ""
    """Text of a progress line; empty for its loss."""


class Estimate(Model):
    """The operations of a training, and the speed of this machine."""

    flops: float
    """Floating-point operations of the model on all training rows, each counted once even if recomputed."""
    flops_per_s: float
    """Rate of a matrix product of the model's width in the training's precision, times the processes."""
    least_s: float
    """Shortest expected time, in seconds."""
    most_s: float
    """Longest expected time, in seconds."""

    @property
    def words(self) -> str:
        """The range as text, such as `2 to 5 min`."""
        return duration(self.least_s, self.most_s)


LOCAL, TINKER = "local", "tinker"
"""Targets whose jobs have a process on this machine: one trains here, one drives a service step by step."""


class JobStatus(StrEnum):
    """Status of a job."""

    PREPARED = "prepared"
    """Its rows are written, and it is not started."""
    RUNNING = "running"
    """It was started and has not ended."""
    SUCCEEDED = "succeeded"
    """It has a model."""
    FAILED = "failed"
    """It ended without a model."""
    CANCELLED = "cancelled"
    """The user cancelled it."""

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobData(Model):
    """Rows of a store or of pairs."""

    store: Path
    """The store."""
    digest: Sha256
    """Digest of its content."""
    n_episodes: Count
    """Number of episodes."""
    n_steps: Count
    """Number of steps."""
    n_learned: Count
    """Steps whose completions the rows train."""
    n_rows: Count
    """Number of rows."""
    n_tokens: Count
    """Tokens of the rows."""
    n_learned_tokens: Count
    """Tokens with a loss weight."""
    longest: Count
    """Tokens of the longest row."""
    left: dict[str, int] = {}
    """Steps that no row trains, by reason."""
    losses: dict[str, int] = {}
    """Values that the rows cannot carry, by kind."""

    @classmethod
    def of(cls, made: Conversion, **counted: Any) -> Self:
        """Combine the counts of a conversation of rows with counted values, which take precedence."""
        same = ("store", "n_episodes", "n_steps", "n_learned", "n_rows", "left", "losses")
        return cls(**{name: getattr(made, name) for name in same} | {"digest": made.store_digest} | counted)


class Shown(NamedTuple):
    """How a command shows a job that it returns."""

    folder: Path | None
    """Folder of the jobs; None after a dry run, which keeps and prints no job."""
    messages: tuple[str, ...] | None = None
    """Messages to show with all fields of the job; None to show only its outcome."""
    exit_code: int = 0
    """Exit code of the command."""


class TuneJob(Model, Result):
    """A training job, as `job.json` in its folder stores it."""

    job_id: Name
    """Name of the job and of its folder."""
    key: Sha256
    """Hash of the plan: the same for the same data, model and recipe, which are never paid for twice."""
    target: Name
    """Target that trains it."""
    method: Annotated[str, Field(pattern="^(sft|dpo|kto|rl)$")] = "sft"
    """Training method."""
    base: Name
    """The base model."""
    recipe: JsonObject
    """All other settings that affect the result."""
    train: JobData | None = None
    """Training data; None if the model plays during its training."""
    validation: JobData | None = None
    """Validation data."""
    leak: JsonObject | None = None
    """Result of the leak check; None if nothing could be compared."""
    function: str | None = None
    """The gateway's function of the steps, when there is only one."""
    variants: tuple[str, ...] = ()
    """Variants of the steps."""
    versions: dict[str, str] = {}
    """Versions of the packages that affect the result."""
    code_commit: Text | None = None
    """Commit of the working folder's repository; None outside of one."""
    created_at: UtcTime
    """Time of the preparation."""
    status: JobStatus = JobStatus.PREPARED
    """Status of the job."""
    process: Process | None = None
    """Its process on this machine."""
    remote: JsonObject = {}
    """Its state at a service: ids of the job and of the files."""
    finished_at: UtcTime | None = None
    """Time of its end."""
    error: Text | None = None
    """Reason of its failure."""
    estimate: Estimate | None = None
    """The expected time; None if unknown before the start, such as at a service."""
    result: JsonObject = {}
    """Result of the training."""
    _shown: Shown = PrivateAttr(default=Shown(Path()))

    def shown(self, how: Shown) -> TuneJob:
        """Return the same job with other settings of its display."""
        job = self.model_copy()
        job._shown = how
        return job

    @property
    def is_here(self) -> bool:
        """Whether a local process runs it, even if the model is at a service."""
        return self.target in (LOCAL, TINKER)

    @property
    def learned(self) -> JobData:
        """Training data, for a job that has some."""
        assert self.train is not None
        return self.train

    @property
    def exit_code(self) -> int:
        """Exit code of the command that returned it."""
        return self._shown.exit_code

    @property
    def outcome(self) -> str:
        """The model at a service; steps, losses and price if known."""
        result: dict[str, Any] = self.result
        best, first = result.get("best_step"), result.get("first_success")
        at = "" if best is None else f" at step {best}"
        before = "" if first is None else f" (at first {first:.2f})"
        planned = "" if self.estimate is None else f" (planned {self.estimate.words})"
        told: dict[str, Callable[[Any], str]] = {
            "n_steps": lambda n: plural(n, "step"),
            "train_loss": lambda loss: f"loss {loss:.3f}",
            "eval_loss": lambda loss: f"validation {loss:.3f}{at}",
            "n_iterations": lambda n: plural(n, "iteration"),
            "success": lambda share: f"held-out success {share:.2f}{before}",
            "margin": lambda margin: f"margin {margin:.3f}",
            "cost_usd": lambda cost: f"{cost:,.2f} USD",
            "seconds": lambda seconds: f"took {duration(seconds)}{planned}",
        }
        parts = [tell(result[name]) for name, tell in told.items() if result.get(name) is not None]
        return "  ".join(([result["model"]] if result.get("model") else []) + parts)

    def __str__(self) -> str:
        if self._shown.folder is None:
            return ""
        last = line(
            "  ".join(filter(None, (str(self._shown.folder / self.job_id), self.status, self.outcome)))
        )
        return last if self._shown.messages is None else f"{self._table()}\n{last}"

    def __repr__(self) -> str:
        return f"<job {self.job_id}: {'  '.join(filter(None, (self.status, self.outcome)))}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._table())}</pre>"

    def __eq__(self, other: object) -> bool:
        """Compare all fields, without the settings of the display."""
        return isinstance(other, TuneJob) and self.__dict__ == other.__dict__

    def _table(self) -> str:
        told = (("told", message) for message in self._shown.messages or ())
        return table_text([Cell("job"), Cell(self.job_id)], [*self._facts(), *told])

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "status", self.status
        yield "target", self.target
        yield "model", self.base
        if self.train is not None:
            rows = plural(self.train.n_rows, "row")
            yield "learned", f"{self.train.store} ({self.train.digest[:12]}), {rows}"
        if self.validation is not None:
            yield "measured", f"{self.validation.store} ({self.validation.digest[:12]})"
        yield from _flat(self.recipe)
        yield from self.versions.items()
        if self.code_commit is not None:
            yield "commit", self.code_commit
        yield "since", f"{self.created_at:%Y-%m-%d %H:%M} UTC"
        trained: Any = self.result.get("n_trained_tokens")
        if trained is not None:
            yield "trained tokens", count(trained)
        if self.is_here:
            yield from _flat(self.remote)
        else:
            from trajkit.training.hosted.remote import Remote

            yield from Remote.of(self).lines()


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a recipe that are set, group by group."""
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)


def key_of(*, target: str, method: str, base: str, recipe: JsonObject, digests: tuple[str, ...]) -> str:
    """Return the key of a plan: two jobs with the same key would give the same model."""
    plan = json.dumps([target, method, base, recipe, digests], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(plan.encode("utf-8")).hexdigest()
