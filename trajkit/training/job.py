"""One fine-tuning: what was asked for, on which data, where it runs, and what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import Field, PrivateAttr

from trajkit._core.console import Cell, count, line, plural, table_text
from trajkit._core.result import Result
from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.stack.process import Process

if TYPE_CHECKING:
    from trajkit.curation.rows.conversion import Conversion


LOCAL, TINKER = "local", "tinker"
"""Targets whose jobs have a process on this machine: one trains here, one drives a service step by step."""


class JobStatus(StrEnum):
    """How far a job is."""

    PREPARED = "prepared"
    """Its rows are written, and nothing was started."""
    RUNNING = "running"
    """It was started, and no end was seen."""
    SUCCEEDED = "succeeded"
    """There is a model."""
    FAILED = "failed"
    """It ended without one."""
    CANCELLED = "cancelled"
    """Somebody ended it."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobData(Model):
    """Rows of a store or of pairs."""

    store: Path
    """The store."""
    digest: Sha256
    """Digest of its content."""
    n_episodes: Count
    """Its episodes."""
    n_steps: Count
    """Its steps."""
    n_learned: Count
    """Steps that the rows teach."""
    n_rows: Count
    """Rows made of it."""
    n_tokens: Count
    """Tokens of the rows."""
    n_learned_tokens: Count
    """Those that carry loss."""
    longest: Count
    """Tokens of the longest row."""
    left: dict[str, int] = {}
    """Steps that no row teaches, by reason."""
    losses: dict[str, int] = {}
    """What the rows do not say although the steps did, by kind."""

    @classmethod
    def of(cls, made: Conversion, **counted: Any) -> Self:
        """What a conversion says of its rows, and over it what was counted in them."""
        same = ("store", "n_episodes", "n_steps", "n_learned", "n_rows", "left", "losses")
        return cls(**{name: getattr(made, name) for name in same} | {"digest": made.store_digest} | counted)


class Shown(NamedTuple):
    """How a command shows a job that it returns."""

    folder: Path | None
    """Where the job is kept; None after a dry run, which keeps none and prints none."""
    messages: tuple[str, ...] | None = None
    """Messages to show with all fields of the job; None to show its outcome alone."""
    exit_code: int = 0
    """Exit code of the command."""


class TuneJob(Model, Result):
    """A fine-tuning, as `job.json` in its folder keeps it."""

    job_id: Name
    """Its name, and that of its folder."""
    key: Sha256
    """What it is a job of: the same for the same data, model and recipe, which are never paid for twice."""
    target: Name
    """What trains it."""
    method: Annotated[str, Field(pattern="^(sft|dpo|kto|rl)$")] = "sft"
    """How it learns."""
    base: Name
    """The model that it starts from."""
    recipe: JsonObject
    """Everything else that decides what comes out."""
    train: JobData | None = None
    """What is learned; None where the model plays while it is trained."""
    validation: JobData | None = None
    """What measures it on the way."""
    leak: JsonObject | None = None
    """What the two have in common; None where nothing could be compared."""
    function: str | None = None
    """The gateway's function that the steps are of, when it is only one."""
    variants: tuple[str, ...] = ()
    """The variants that answered."""
    versions: dict[str, str] = {}
    """Of what decides the result."""
    code_commit: Text | None = None
    """Commit of the working folder's repository; None outside of one."""
    created_at: UtcTime
    """When it was prepared."""
    status: JobStatus = JobStatus.PREPARED
    """How far it is."""
    process: Process | None = None
    """Where it runs on this machine."""
    remote: JsonObject = {}
    """Where it runs at a service: ids of the job and of the files."""
    finished_at: UtcTime | None = None
    """When it ended."""
    error: Text | None = None
    """Why it failed."""
    result: JsonObject = {}
    """What came out."""
    _shown: Shown = PrivateAttr(default=Shown(Path()))

    def shown(self, how: Shown) -> TuneJob:
        """The same job, to be shown in another way."""
        job = self.model_copy()
        job._shown = how
        return job

    @property
    def is_here(self) -> bool:
        """Whether a process of this machine carries it out, also where the model is at a service."""
        return self.target in (LOCAL, TINKER)

    @property
    def learned(self) -> JobData:
        """What is learned, of a job that learns a store."""
        assert self.train is not None
        return self.train

    @property
    def exit_code(self) -> int:
        """Exit code of the command that returned it."""
        return self._shown.exit_code

    @property
    def outcome(self) -> str:
        """The model where a service keeps it; steps, losses and price where they are known."""
        result: dict[str, Any] = self.result
        parts = [result["model"]] if result.get("model") else []
        if result.get("n_steps") is not None:
            parts.append(plural(result["n_steps"], "step"))
        if result.get("train_loss") is not None:
            parts.append(f"loss {result['train_loss']:.3f}")
        if result.get("eval_loss") is not None:
            best = f" at step {result['best_step']}" if result.get("best_step") is not None else ""
            parts.append(f"validation {result['eval_loss']:.3f}{best}")
        if result.get("n_iterations") is not None:
            parts.append(plural(result["n_iterations"], "iteration"))
        if result.get("success") is not None:
            before = (
                f" (at first {result['first_success']:.2f})"
                if result.get("first_success") is not None
                else ""
            )
            parts.append(f"held-out success {result['success']:.2f}{before}")
        if result.get("margin") is not None:
            parts.append(f"margin {result['margin']:.3f}")
        if result.get("cost_usd") is not None:
            parts.append(f"{result['cost_usd']:,.2f} USD")
        return "  ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The job as `job.json` keeps it."""
        return self.model_dump(mode="json")

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
        """Whether all fields are the same, however the two jobs are shown."""
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
    """The fields of a recipe that are set, group by group."""
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)


def key_of(*, target: str, method: str, base: str, recipe: JsonObject, digests: tuple[str, ...]) -> str:
    """What two jobs have in common that would give the same model."""
    said = json.dumps([target, method, base, recipe, digests], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(said.encode("utf-8")).hexdigest()
