"""Jobs as tuned models: the record of a job in the terms of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit.commands.place import last_job
from trajkit.errors import RequestError, StoreError

if TYPE_CHECKING:
    from trajkit.curation.pair_file import PairsManifest
    from trajkit.registry.ledger import Learned, TunedModel
    from trajkit.schema import LineageEntry, Manifest
    from trajkit.training.job import JobData, TuneJob
    from trajkit.training.runs import Runs

_ROWS = ".provenance.parquet"
_SIDES = {"train": ("train", "training"), "validation": ("validation",)}
"""Prefix of the files of a job, for each side."""


def tuned_model(runs: Runs, job: TuneJob, *, name: str | None = None) -> TunedModel:
    """A job's model and its origin.

    Args:
        runs: Where it is kept.
        job: The job.
        name: Its name in a configuration; None for its name at its service, else the job's.
    """
    from trajkit.registry.ledger import TunedModel

    names = tuple(dict.fromkeys(_names(runs, job)))
    lora: Any = job.recipe.get("lora")
    adapter = lora.get("adapter") if isinstance(lora, dict) else None  # that it continued
    return TunedModel(
        name=name or (names[0] if names and job.target != "local" else job.job_id),
        names=names,
        job_id=job.job_id,
        job_key=job.key,
        target=job.target,
        method=job.method,
        base=adapter or job.base,
        recipe=job.recipe,
        train=None if job.train is None else _learned(runs, job, "train", job.train),
        validation=None if job.validation is None else _learned(runs, job, "validation", job.validation),
    )


def _names(runs: Runs, job: TuneJob) -> Iterator[str]:
    """Its name at its service, or the folders that it is in; then its checkpoints."""
    if (model := job.result.get("model")) is not None:
        yield str(model)
    checkpoints: Any = job.remote.get("checkpoints") or ()
    for checkpoint in checkpoints:
        yield str(checkpoint["model"])
    for folder in ("model", "merged"):
        path = runs.path(job.job_id).absolute() / folder
        if path.is_dir():
            yield str(path)


def _learned(runs: Runs, job: TuneJob, side: str, data: JobData) -> Learned:
    from trajkit.registry.ledger import Learned

    folder = runs.path(job.job_id).absolute()
    rows = [path for stem in _SIDES[side] for path in sorted(folder.glob(f"{stem}*{_ROWS}"))]
    return Learned(
        store=data.store.absolute(),
        digest=data.digest,
        n_episodes=data.n_episodes,
        n_steps=data.n_steps,
        n_learned=data.n_learned,
        rows=rows[0] if rows else None,
        history=history_of(data.store, data.digest),
    )


def history_of(path: Path, digest: str) -> tuple[LineageEntry, ...]:
    """The history of a store or pairs; empty if it has changed, or is gone."""
    try:
        manifest = manifest_of(path)
    except StoreError:
        return ()
    return manifest.lineage if manifest.digest == digest else ()


def manifest_of(path: str | Path) -> Manifest | PairsManifest:
    """The manifest of a store or a set of pairs.

    Raises:
        StoreError: It is neither.
    """
    from trajkit.curation.pair_file import open_pairs
    from trajkit.store.reader import open_store

    try:
        return open_store(path).manifest
    except StoreError as error:
        try:
            return open_pairs(path).manifest
        except StoreError:
            raise error from None


def all_models(runs: Runs) -> list[TunedModel]:
    """The models of all jobs that have one, the newest first."""
    return [tuned_model(runs, job) for job in runs.all() if job.status == "succeeded"]


def finished_job(job: str | None, runs_folder: Path) -> tuple[Runs, TuneJob]:
    """The named job, else the last one started here; it has a model.

    Raises:
        RequestError: There is none, or it has no model (yet).
        ServiceError: It runs at a service, which did not report its state.
    """
    from trajkit.training.jobs import refreshed
    from trajkit.training.runs import Runs

    runs = Runs(runs_folder)
    if job is None:
        last = last_job()
        if last is None:
            raise RequestError(
                "no JOB given, and none was started here",
                hint="`trajkit jobs list` names those in a folder; --model NAME for one tuned elsewhere",
            )
        runs, job = Runs(last[0]), last[1]
    found = runs.load(job)
    if not found.status.is_final:
        found = refreshed(runs, job)
    if found.status != "succeeded":
        words = f": {found.error}" if found.error else ""
        hint = f"trajkit jobs {'resume' if found.status.is_final else 'wait'} {job}"
        raise RequestError(f"job {job} has no model: it is {found.status}{words}", hint=hint)
    return runs, found
