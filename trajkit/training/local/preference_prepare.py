"""What comes before a training on preferences: rows, their tokens, the proof that nothing leaked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from trajkit._core.files import building_folder
from trajkit._core.lazy import need
from trajkit.curation.leak_report import LeakReport
from trajkit.formats.think import Thoughts
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.training.job import TuneJob, key_of
from trajkit.training.local.base_model import Sizes, measured, settled
from trajkit.training.local.finish import TOKENIZER
from trajkit.training.local.optimizer import check_optimizer
from trajkit.training.local.preference_recipe import DpoRecipe, KtoRecipe
from trajkit.training.local.preference_rows import opened, refuse_mixed, write_rows
from trajkit.training.local.preference_tokens import Verdicts, verdicts_of
from trajkit.training.local.preference_trainer import EXTRA
from trajkit.training.local.prepare import TRAIN_TOKENS, VALIDATION_TOKENS
from trajkit.training.local.recipe import deciding
from trajkit.training.local.reports import check_reports
from trajkit.training.local.template import save_tokenizer, spelled
from trajkit.training.local.tokenised import Limit
from trajkit.training.new_job import begin_job, name_for, same_job
from trajkit.training.runs import Runs
from trajkit.training.side import digest_of, leak_of, origin_of_side

_DECIDING = ("torch", "transformers", "peft", "trl", "accelerate", "tokenizers", "numpy")
Progress = Callable[[str, int, int | None], None]


class PreferenceRequest(Model):
    """What is trained on what."""

    method: Annotated[str, Field(pattern="^(dpo|kto)$")]
    """How."""
    base: str
    """Folder or id of the model."""
    train: Path
    """The pairs that are learned; for `kto` a store will do."""
    validation: Path | None = None
    """The pairs (or the store) that measure on the way; None for none."""
    recipe: DpoRecipe | KtoRecipe
    """With which settings."""
    good: str | None = None
    """Of a store: an SQL condition on episodes that says which answers are good; None for their outcome."""
    thoughts: Thoughts = Thoughts.KEEP
    """What becomes of thoughts."""
    tokenizer: str | None = None
    """Folder or id of a tokenizer that stands in the place of the model's own."""
    chat_template: str | None = None
    """The same for its chat template: `chatml`, `plain`, or a file."""
    allow_leak: bool = False
    """Train although the two sides share what they must not; the report says so."""


class PreparedPreference(NamedTuple):
    """A job that can be started."""

    job: TuneJob
    """The job, saved."""
    leak: LeakReport
    """What the two sides have in common."""
    n_steps: int
    """Steps of the optimizer that the training takes, if it is not stopped early."""
    sizes: Sizes
    """How large the model is, and how much of it is trained."""
    verdicts: Verdicts | None
    """How many answers are good and how many are bad; None for `dpo`."""
    is_new: bool
    """False when the same job was there already: that is the one."""


def prepare_preference(
    request: PreferenceRequest,
    runs: Runs,
    *,
    name: str | None = None,
    on_progress: Progress = lambda what, n_done, n_total: None,
) -> PreparedPreference:
    """Write the rows of a job as tokens, and the job itself. Nothing is started.

    The same data, model and recipe give the same job: it is found and not made twice.

    Args:
        request: What is asked for.
        runs: Where jobs are kept.
        name: Name of the job; None for one made of the model and the pairs.
        on_progress: Told what is being done, how far it is, and of how much (None when unknown).

    Raises:
        RequestError: The model has no tokenizer or chat template, or the name is taken.
        DataError: The sides leak, a row is too long, or teaches nothing.
        NothingMatched: No pair gives a row.
        StoreError: The pairs or a store cannot be read.
        MissingExtra: trl, or who is to be told of losses, is not installed.
    """
    request = request.model_copy(update={"base": settled(request.base)})
    train = opened(request.train, request.method, good=request.good)
    validation = (
        None if request.validation is None else opened(request.validation, request.method, good=request.good)
    )
    refuse_mixed(train, validation)
    on_progress("looking for leaks", 0, None)
    report = leak_of(train, validation).checked(allow_leak=request.allow_leak)
    recipe = _resolved(request)
    digests = tuple(digest_of(side) for side in (train, validation) if side is not None)
    key = key_of(
        target="local", method=request.method, base=request.base, recipe=deciding(recipe), digests=digests
    )
    on_progress("measuring the model", 0, None)  # here, at the latest, torch and transformers are imported
    need("trl", extra=EXTRA)
    check_reports(request.recipe)
    check_optimizer(request.recipe)
    sizes = measured(request.base, request.recipe)
    job = same_job(runs, key, name)
    is_new = job is None
    if job is None:
        job_id = name_for(runs, name, base=request.base, data=request.train, method=request.method)
        sides = {TRAIN_TOKENS: train} | ({} if validation is None else {VALIDATION_TOKENS: validation})
        with building_folder(runs.path(job_id)) as folder:
            tokenizer = save_tokenizer(
                request.base,
                folder / TOKENIZER,
                tokenizer=request.tokenizer,
                template=request.chat_template,
            )
            limit = Limit.of_model(request.recipe.max_length, sizes, request.base)
            made = {
                file: write_rows(
                    side,
                    folder / file,
                    tokenizer,
                    limit,
                    method=request.method,
                    good=request.good,
                    thoughts=request.thoughts,
                    on_progress=on_progress,
                )
                for file, side in sides.items()
            }
            job = begin_job(
                folder,
                job_id=job_id,
                key=key,
                target="local",
                method=request.method,
                base=request.base,
                recipe=recipe,
                train=made[TRAIN_TOKENS],
                validation=made.get(VALIDATION_TOKENS),
                leak=report,
                origin=origin_of_side(train),
                packages=_DECIDING,
            )
    verdicts = verdicts_of(runs.path(job.job_id) / TRAIN_TOKENS) if request.method == "kto" else None
    return PreparedPreference(
        job, report, request.recipe.n_steps(job.learned.n_rows), sizes, verdicts, is_new
    )


def _resolved(request: PreferenceRequest) -> JsonObject:
    said = request.model_dump(mode="json", include={"good", "thoughts", "tokenizer", "allow_leak"})
    return request.recipe.model_dump(mode="json") | said | {"chat_template": spelled(request.chat_template)}
