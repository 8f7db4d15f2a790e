"""Complete a trained model: tokenizer, merged model, model card, chart of the losses."""

from __future__ import annotations

from pathlib import Path

from trajkit._core.files import building_folder
from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.training.job import JobStatus, TuneJob
from trajkit.training.local.base_model import merge
from trajkit.training.local.outcome.card import write_card
from trajkit.training.local.outcome.loss_page import write_loss_page
from trajkit.training.local.recipe import WISHES, LocalRecipe
from trajkit.training.local.train import Trained
from trajkit.training.rl.page import write_rl_page
from trajkit.training.runs import Runs

MODEL, MERGED, TOKENIZER = "model", "merged", "tokenizer"


def finish(runs: Runs, job: TuneJob, trained: Trained) -> None:
    """Complete the folder of a job whose weights are saved.

    Args:
        runs: Folder of the jobs.
        job: The job.
        trained: Result of the training.
    """
    job = runs.load(job.job_id).model_copy(update={"result": trained.model_dump(mode="json")})
    _complete(runs, job, runs.path(job.job_id) / MODEL, is_adapter=job.recipe.get("lora") is not None)
    if job.recipe.get("merge"):
        write_merged(runs, job)
    (write_rl_page if job.method == "rl" else write_loss_page)(runs, job)


def write_merged(runs: Runs, job: TuneJob) -> Path:
    """Write adapter and base as one model beside the adapter, unless it exists; return its folder.

    Raises:
        RequestError: There is no adapter.
    """
    goal = runs.path(job.job_id) / MERGED
    if goal.is_dir():
        return goal
    if job.recipe.get("lora") is None:
        raise RequestError(f"{job.job_id} has a whole model and no adapter", hint="leave out --merge")
    names = LocalRecipe.model_fields.keys() - {"play"}
    recipe = LocalRecipe.model_validate({name: value for name, value in job.recipe.items() if name in names})
    with building_folder(goal) as folder:
        merge(job.base, runs.path(job.job_id) / MODEL, folder, recipe)
        _complete(runs, job, folder, is_adapter=False)
    return goal


def take_wishes(runs: Runs, job_id: str, recipe: LocalRecipe) -> None:
    """Record requested settings that do not change the model, for a job that may exist already.

    Args:
        runs: Folder of the jobs.
        job_id: Id of the job.
        recipe: The requested recipe.
    """
    job = runs.load(job_id)
    wishes = {name: getattr(recipe, name) for name in WISHES}
    if any(job.recipe.get(name) != value for name, value in wishes.items()):
        runs.save(job.model_copy(update={"recipe": {**job.recipe, **wishes}}))
    if recipe.merge and job.status == JobStatus.SUCCEEDED:
        write_merged(runs, job)


def _complete(runs: Runs, job: TuneJob, folder: Path, *, is_adapter: bool) -> None:
    transformers = need("transformers", extra="local")
    kept = runs.path(job.job_id) / TOKENIZER
    source = str(kept) if kept.is_dir() else job.base
    pretrained(transformers.AutoTokenizer, source).save_pretrained(folder)
    known = {name: value for name, value in job.result.items() if name in Trained.model_fields}
    trained = Trained.model_validate(known)  # results of preference trainings have more fields
    write_card(folder, job, trained, is_adapter=is_adapter)
