"""One fine-tuning: what was asked for, on which data, where it runs, and what came of it."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trajkit.schema import Model
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.stack.process import Process


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
    """Rows of a store."""

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


class TuneJob(Model):
    """A fine-tuning, as `job.json` in its folder keeps it."""

    job_id: Name
    """Its name, and that of its folder."""
    key: Sha256
    """What it is a job of: the same for the same data, model and recipe, which are never paid for twice."""
    target: Name
    """What trains it."""
    method: Annotated[str, Field(pattern="^(sft|dpo|kto)$")] = "sft"
    """How it learns."""
    base: Name
    """The model that it starts from."""
    recipe: JsonObject
    """Everything else that decides what comes out."""
    train: JobData
    """What is learned."""
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


def key_of(*, target: str, method: str, base: str, recipe: JsonObject, digests: tuple[str, ...]) -> str:
    """What two jobs have in common that would give the same model."""
    said = json.dumps([target, method, base, recipe, digests], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(said.encode("utf-8")).hexdigest()
