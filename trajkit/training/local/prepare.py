"""What comes before a training on this machine: rows, their tokens, the proof that nothing leaked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trajkit._core.files import building_folder
from trajkit._core.settings import reserved
from trajkit.curation.leak import leak
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.request import Overlong
from trajkit.errors import NothingMatched, RequestError
from trajkit.formats.base import Unit
from trajkit.formats.think import Thoughts
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.formats.weighted import WEIGHTED
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.training.job import JobData, TuneJob, key_of
from trajkit.training.local.base_model import Sizes, measured, settled
from trajkit.training.local.finish import TOKENIZER
from trajkit.training.local.optimizer import check_optimizer
from trajkit.training.local.packing import pack
from trajkit.training.local.play import open_stage
from trajkit.training.local.play_store import staged
from trajkit.training.local.recipe import LocalRecipe, deciding
from trajkit.training.local.replicas import check_replicas, n_replicas
from trajkit.training.local.reports import check_reports
from trajkit.training.local.template import save_tokenizer, spelled
from trajkit.training.local.tokenised import Limit, open_tokens, tokenise
from trajkit.training.new_job import begin_job, name_for, same_job
from trajkit.training.origin import origin_of
from trajkit.training.runs import Runs

_DECIDING = ("torch", "transformers", "peft", "accelerate", "tokenizers", "numpy")
TRAIN_TOKENS, VALIDATION_TOKENS = "train.arrow", "validation.arrow"
ENDLESS = "end of turn that the chat template does not write"
"""What a model cannot learn then: to stop."""


class LocalRequest(Model):
    """What is trained on what."""

    base: str
    """Folder or id of the model."""
    train: Path
    """The store that is learned."""
    validation: Path | None = None
    """The store that measures on the way; None for none."""
    recipe: LocalRecipe = LocalRecipe()
    """How."""
    unit: Unit = Unit.EPISODE
    """What becomes a row: with `episode` a conversation is read once, and every answer of it is learned."""
    thoughts: Thoughts = Thoughts.KEEP
    """What becomes of thoughts."""
    overlong: Overlong = Overlong.ERROR
    """What becomes of rows that are too long."""
    tokenizer: str | None = None
    """Folder or id of a tokenizer that stands in the place of the model's own."""
    chat_template: str | None = None
    """The same for its chat template: `chatml`, `plain`, or a file."""
    allow_leak: bool = False
    """Train although the two stores share what they must not; the report says so."""


class Prepared(NamedTuple):
    """A job that can be started."""

    job: TuneJob
    """The job, saved."""
    leak: LeakReport
    """What the stores have in common."""
    n_steps: int
    """Steps of the optimizer that the training takes, if it is not stopped early."""
    sizes: Sizes
    """How large the model is, and how much of it is trained."""
    is_new: bool
    """False when the same job was there already: that is the one."""


def prepare(
    request: LocalRequest,
    runs: Runs,
    *,
    name: str | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda what, n_done, n_total: None,
) -> Prepared:
    """Write the rows of a job as tokens, and the job itself. Nothing is started.

    The same data, model and recipe give the same job: it is found and not made twice.

    Args:
        request: What is asked for.
        runs: Where jobs are kept.
        name: Name of the job; None for one made of the model and the store.
        on_progress: Told what is being done, how far it is, and of how much (None when unknown).

    Raises:
        RequestError: The model has no tokenizer or chat template, or the name is taken.
        DataError: The stores leak, a row is too long, or a row teaches nothing.
        NothingMatched: No step is learned.
        StoreError: A store cannot be read.
    """
    check_reports(request.recipe)
    check_optimizer(request.recipe)
    check_replicas(request.recipe)
    request = request.model_copy(update={"base": settled(request.base)})
    train = open_dataset(request.train)
    validation = None if request.validation is None else open_dataset(request.validation)
    on_progress("looking for leaks", 0, None)
    report = leak(request.train, request.validation).checked(allow_leak=request.allow_leak)
    digests = tuple(data.store.manifest.digest for data in (train, validation) if data is not None)
    request = request.model_copy(update={"recipe": _staged(request, train)})
    recipe = _resolved(request)
    key = key_of(target="local", method="sft", base=request.base, recipe=deciding(recipe), digests=digests)
    on_progress("measuring the model", 0, None)
    sizes = measured(request.base, request.recipe)
    if (found := same_job(runs, key, name)) is not None:
        return Prepared(found, report, _n_steps(found, runs, request.recipe), sizes, is_new=False)
    job_id = name_for(runs, name, base=request.base, data=request.train, method="sft")
    origin = origin_of(train)
    with building_folder(runs.path(job_id)) as folder:
        tokenizer = save_tokenizer(
            request.base,
            folder / TOKENIZER,
            tokenizer=request.tokenizer,
            template=request.chat_template,
        )
        sides = {TRAIN_TOKENS: train} | ({} if validation is None else {VALIDATION_TOKENS: validation})
        made = {
            file: _rows(data, folder, file, tokenizer, sizes, request, on_progress)
            for file, data in sides.items()
        }
        job = begin_job(
            folder,
            job_id=job_id,
            key=key,
            target="local",
            method="sft",
            base=request.base,
            recipe=recipe,
            train=made[TRAIN_TOKENS],
            validation=made.get(VALIDATION_TOKENS),
            leak=report,
            origin=origin,
            packages=_DECIDING,
        )
    return Prepared(job, report, _n_steps(job, runs, request.recipe), sizes, is_new=True)


def _staged(request: LocalRequest, train: Dataset) -> LocalRecipe:
    """The recipe with what is not said of the episodes that it plays, from the store; all of it checked."""
    recipe = request.recipe
    if recipe.play is None:
        return recipe
    if request.validation is None:
        raise RequestError("the model plays at each validation, and nothing measures", hint="give --val")
    stage = open_stage(staged(recipe.play, train, origin_of(train)), reserved())
    return recipe.model_copy(update={"play": stage.recipe})


def _resolved(request: LocalRequest) -> JsonObject:
    said = request.model_dump(
        mode="json", include={"unit", "thoughts", "overlong", "tokenizer", "allow_leak"}
    )
    return request.recipe.model_dump(mode="json") | said | {"chat_template": spelled(request.chat_template)}


def _rows(
    data: Dataset,
    folder: Path,
    file: str,
    tokenizer: ChatTemplate,
    sizes: Sizes,
    request: LocalRequest,
    on_progress: Callable[[str, int, int | None], None],
) -> JobData:
    lines = folder / file.replace(".arrow", ".jsonl")
    limit = Limit.of_model(request.recipe.max_length, sizes, request.base)
    # otherwise every row would be counted twice
    fitting = (
        {}
        if request.overlong == Overlong.ERROR
        else {
            "overlong": request.overlong,
            "max_length": limit.n_tokens,
            "tokenizer": str(folder / TOKENIZER),
        }
    )
    try:
        made: Conversion = convert(
            data,
            lines,
            to=WEIGHTED,
            unit=request.unit,
            thoughts=request.thoughts,
            progress=lambda n_done, n_total: on_progress("writing rows", n_done, n_total),
            **fitting,
        )
    except NothingMatched as error:
        if file == TRAIN_TOKENS:
            raise
        raise NothingMatched(
            f"nothing measures: {error.message}", hint="more episodes, another --val, or --val-fraction 0"
        ) from error
    tally = tokenise(
        lines,
        folder / file,
        tokenizer,
        limit=limit,
        on_progress=lambda n_done: on_progress("counting tokens", n_done, made.n_rows),
    )
    return JobData(
        store=data.store.path,
        digest=data.store.manifest.digest,
        n_episodes=made.n_episodes,
        n_steps=made.n_steps,
        n_learned=made.n_learned,
        n_rows=tally.n_rows,
        n_tokens=tally.n_tokens,
        n_learned_tokens=tally.n_learned,
        longest=tally.longest,
        left=made.left,
        losses=made.losses | ({ENDLESS: tally.n_endless} if tally.n_endless else {}),
    )


def _n_steps(job: TuneJob, runs: Runs, recipe: LocalRecipe) -> int:
    """Steps of the optimizer."""
    n_lines = job.learned.n_rows
    if recipe.packing and recipe.max_steps is None:
        n_lines = len(pack(open_tokens(runs.path(job.job_id) / TRAIN_TOKENS).lengths, recipe.max_length))
    return recipe.n_steps(n_lines, n_replicas=n_replicas(recipe))
