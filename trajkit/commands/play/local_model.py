"""The name of a local model: a job's, a folder, an id, or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trajkit.errors import RequestError
from trajkit.models.generation.located import ADAPTER_FILE, located

if TYPE_CHECKING:
    from trajkit.models.serving.served_models import Wanted
    from trajkit.schema.base import JsonObject
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs


class LocalName(NamedTuple):
    """A local model, as it was typed and where it is."""

    called: str
    """Its name: the job's name, or what was typed."""
    model: str
    """Folder or id of the model or the adapter."""
    base: str | None
    """Its base model, if the job names it."""

    @property
    def options(self) -> dict[str, str]:
        """The same as options of a rollout."""
        found = {"model": self.model, "model_called": self.called}
        return found if self.base is None else {**found, "model_base": self.base}


def local_model(name: str, runs_folder: Path, *, is_served: bool = False) -> LocalName:
    """What a name stands for.

    Args:
        name: A job's, a folder with an adapter or a model, an id, or `sample:tiny-base`.
        runs_folder: Where jobs are kept.
        is_served: Whether any other name may be that of a model at a server.

    Raises:
        RequestError: There is none of this name, or the job has no model on this machine.
    """
    from trajkit.training.job import LOCAL

    found = job_of(name, runs_folder)
    if found is None:
        if not is_served:
            refuse_stranger(name, runs_folder)
        return LocalName(name, name, None)
    runs, job = found
    if job.target != LOCAL:
        raise RequestError(
            f"job {job.job_id} was tuned by {job.target}: its model is not on this machine",
            hint="--policy gateway plays it, as a variant: `trajkit register`",
        )
    return LocalName(job.job_id, str(model_folder(name, runs, job)), job.base)


def wanted_models(
    models: Sequence[str], names: Sequence[str | None], base: str | None, runs_folder: Path
) -> list[Wanted]:
    """The models by their names.

    Args:
        models: Jobs, folders, ids or samples.
        names: Their names for clients, in the same order, None for what was typed; or none at all.
        base: Base model of the adapters, if neither the job nor they name it.
        runs_folder: Where jobs are kept.

    Raises:
        RequestError: There is no model of a name, or not one name for each.
    """
    from trajkit.models.serving.served_models import Wanted

    if names and len(names) != len(models):
        raise RequestError(
            f"{len(models)} models and {len(names)} names", hint="--name NAME for each MODEL, in their order"
        )
    found = [local_model(model, runs_folder) for model in models]
    called = [name or each.called for name, each in zip(names or [None] * len(found), found, strict=True)]
    return [Wanted(name, each.model, base or each.base) for name, each in zip(called, found, strict=True)]


class FirstModel(NamedTuple):
    """The initial model of a training run."""

    base: str
    """Folder or id of a model with all its weights."""
    adapter: str | None = None
    """Folder of its adapter that the training continues; None for a new one, or for none."""

    def recipe(self, fields: JsonObject) -> JsonObject:
        """The fields of a recipe, with the settings of the adapter.

        Raises:
            RequestError: They do not fit the adapter.
        """
        from trajkit.training.local.base_model import going_on

        return fields if self.adapter is None else going_on(fields, self.adapter)

    def tokenizer(self, wanted: str | None) -> str | None:
        """The requested tokenizer, else that of the adapter, else None."""
        has_own = self.adapter is not None and (Path(self.adapter) / "tokenizer_config.json").is_file()
        return wanted or (self.adapter if has_own else None)


def first_model(name: str, runs_folder: Path) -> FirstModel:
    """The initial model: for a job the merged model, else its model or adapter; else what was typed.

    Raises:
        RequestError: The job has no model on this machine, or an adapter does not name its base model.
    """
    from trajkit.training.local.outcome.finish import MERGED

    model, base = name, None
    if (found := job_of(name, runs_folder)) is not None:
        runs, job = found
        merged = runs.path(job.job_id) / MERGED
        if merged.is_dir() and not _is_model(Path(name)):
            return FirstModel(str(merged))
        _, model, base = local_model(name, runs_folder)
    if not (Path(model) / ADAPTER_FILE).is_file():
        return FirstModel(model)
    base = located(model, base).base
    assert base is not None  # else that is an error
    return FirstModel(base, str(Path(model).absolute()))


def model_folder(name: str, runs: Runs, job: TuneJob) -> Path:
    """Where a job's model is: the folder that was named (a merged model has one of its own), else the job's.

    Raises:
        RequestError: There is none yet.
    """
    from trajkit.training.local.outcome.finish import MODEL

    folder = Path(name) if _is_model(Path(name)) else runs.path(job.job_id) / MODEL
    if not folder.is_dir():
        raise RequestError(
            f"job {job.job_id} has no model: it is {job.status}", hint=f"trajkit jobs wait {job.job_id}"
        )
    return folder


def job_of(name: str, runs_folder: Path) -> tuple[Runs, TuneJob] | None:
    """The job of this name, or that this folder is (or is in); None if the name stands for itself."""
    from trajkit.training.runs import JOB_FILE, Runs

    path = Path(name)
    for folder in (runs_folder / name, path, path.parent):
        if folder.is_dir() and (folder / JOB_FILE).is_file() and (folder != path.parent or path.is_dir()):
            whole = folder.absolute()
            runs = Runs(whole.parent)
            return runs, runs.load(whole.name)
    return None


def refuse_stranger(name: str, runs_folder: Path) -> None:
    """Raise if a name can only be a job's, but is not, instead of requesting it from the Hub.

    Raises:
        RequestError: It is not.
    """
    from trajkit._core.samples import SAMPLE_PREFIX
    from trajkit.training.runs import Runs

    if Path(name).exists() or "/" in name or name.startswith(SAMPLE_PREFIX):
        return
    known = ", ".join(job.job_id for job in Runs(runs_folder).all()) or "none"
    raise RequestError(
        f"no job and no folder {name!r}", hint=f"jobs in {runs_folder}: {known}; an id is like org/name"
    )


def _is_model(path: Path) -> bool:
    return any((path / name).is_file() for name in (ADAPTER_FILE, "config.json"))
