"""Complete a trained model: tokenizer, merged model, model card, chart of the losses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trajkit._core.files import building_folder, write_text
from trajkit._core.lazy import need
from trajkit._core.output.console import duration, size
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.training.job import JobData, JobStatus, TuneJob
from trajkit.training.local.base_model import merge
from trajkit.training.local.outcome.page import write_loss_page, write_rl_page
from trajkit.training.local.recipe import WISHES, LocalRecipe
from trajkit.training.local.train import Trained
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
    write_text(folder / CARD, "\n".join(_lines(job, trained, is_adapter)) + "\n")


CARD = "README.md"


def _lines(job: TuneJob, trained: Trained, is_adapter: bool) -> Iterator[str]:
    yield from _front(job, is_adapter)
    kind = "An adapter for" if is_adapter else "A model tuned from"
    yield from ("", f"# {job.job_id}", "")
    yield f"{kind} `{_plain(job.base)}`, trained by trajkit on an agent's episodes ({job.method})."
    yield from ("", *_UNKNOWN, "", "## Data", "")
    yield from _data(job) if job.train is not None else _played(job)
    yield from ("", "## Training", "")
    yield from _training(job, trained)
    yield from ("", "```json", json.dumps(job.recipe, indent=2, ensure_ascii=False), "```", "")
    yield from ("## Made with", "")
    yield ", ".join(f"{name} {version}" for name, version in job.versions.items()) + "."
    commit = f"commit `{job.code_commit}`" if job.code_commit else "not under version control"
    yield f"Working folder: {commit}. Prepared {job.created_at:%Y-%m-%d %H:%M} UTC."


_UNKNOWN = (
    "**Licence: unknown.** It depends on the licences of the base model and of the data, which trajkit does",
    "not know.",
    "",
    "**Not evaluated.** The losses below measure its predictions of recorded answers, not how well it acts.",
)


def _front(job: TuneJob, is_adapter: bool) -> Iterator[str]:
    yield "---"
    if not Path(job.base).is_absolute():  # the Hub looks for it by that name
        yield f"base_model: {json.dumps(job.base, ensure_ascii=False)}"  # a string of JSON is one of YAML
    yield f"library_name: {'peft' if is_adapter else 'transformers'}"
    yield "pipeline_tag: text-generation"
    yield f"tags: [trajkit, {job.method}{', lora' if job.recipe.get('lora') else ''}]"
    yield "license: unknown"
    yield "---"


def _data(job: TuneJob) -> Iterator[str]:
    yield "| | training | validation |"
    yield "|---|---|---|"
    for name, cell in _FACTS.items():
        yield f"| {name} | {cell(job.learned)} | {'' if job.validation is None else cell(job.validation)} |"
    yield ""
    if (job.leak or {}).get("is_allowed"):
        yield "- **training and validation data leak**, which was allowed: the validation loss is too low"
    for reason, number in job.learned.left.items():
        yield f"- not learned: {number:,} steps: {_plain(reason)}"
    for kind, number in job.learned.losses.items():
        yield f"- the rows cannot carry: {number:,} {_plain(kind)}"
    if job.function is not None:
        variants = ", ".join(f"`{_plain(variant)}`" for variant in job.variants)
        yield f"- function `{_plain(job.function)}`, answers of {variants or 'no known variant'}"


def _played(job: TuneJob) -> Iterator[str]:
    """Describe the episodes that the model played during its training; there is no store of them."""
    played: Any = job.recipe["play"]
    tasks = ", ".join(f"`{_plain(task)}`" for task in played["tasks"])
    yield f"It learned from episodes that it played itself in `{_plain(played['env'])}`: {tasks},"
    yield f"seeds {played['seeds']}. Held-out seeds: {played['eval_seeds'] or 'none'}."


_FACTS: dict[str, Callable[[JobData], str]] = {
    "store": lambda data: f"`{_plain(data.store.name)}`",
    "digest": lambda data: f"`{data.digest}`",
    "episodes": lambda data: f"{data.n_episodes:,}",
    "steps": lambda data: f"{data.n_steps:,}",
    "learned steps": lambda data: f"{data.n_learned:,}",
    "rows": lambda data: f"{data.n_rows:,}",
    "tokens": lambda data: f"{data.n_tokens:,}",
    "learned tokens": lambda data: f"{data.n_learned_tokens:,}",
}


def _training(job: TuneJob, trained: Trained) -> Iterator[str]:
    yield f"- {trained.n_steps:,} steps of the optimizer"
    yield f"- {trained.n_trainable:,} of {trained.n_weights:,} weights trained"
    if trained.tokens_per_s is not None:
        took = f"{duration(trained.seconds)}, " if trained.seconds is not None else ""
        yield f"- {took}{trained.tokens_per_s:,.0f} tokens a second{_used(job, trained)}"
    yield f"- mean training loss {trained.train_loss:.4f}"
    if trained.episode_return is not None:
        error = trained.episode_return_error or 0.0
        yield f"- mean return {trained.episode_return:.3f} ± {error:.3f} (standard error) of the episodes"
        yield "  that selected this checkpoint: evaluate it on other seeds"
    if trained.eval_loss is not None:
        yield f"- validation loss {trained.eval_loss:.4f}, at the kept checkpoint of step {trained.best_step}"


def _used(job: TuneJob, trained: Trained) -> str:
    """Return the share of the machine that the training used, and its memory, each if known."""
    said = ""
    if job.estimate is not None and trained.seconds and not trained.was_stopped_early:
        share = job.estimate.flops / trained.seconds / job.estimate.flops_per_s
        said += f", {share:.0%} of a matrix product's {job.estimate.flops_per_s:.1e} operations a second"
    return said if trained.peak_bytes is None else f"{said}, at most {size(trained.peak_bytes)} on a GPU"


def _plain(text: str) -> str:
    """Put a text on one line, without the markup of tables and code."""
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|").replace("`", "'")
