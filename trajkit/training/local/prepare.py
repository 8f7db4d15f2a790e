"""What comes before a training on this machine: rows, their tokens, the proof that nothing leaked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from trajkit._core.lazy import need
from trajkit._core.settings import reserved
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.rows.request import Overlong
from trajkit.errors import RequestError
from trajkit.formats.base import Unit
from trajkit.formats.think import Thoughts
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset
from trajkit.training.job import TuneJob, key_of
from trajkit.training.local.base_model import Sizes, measured, settled
from trajkit.training.local.finish import TOKENIZER
from trajkit.training.local.optimizer import check_optimizer
from trajkit.training.local.packing import pack
from trajkit.training.local.play import open_stage
from trajkit.training.local.play_store import staged
from trajkit.training.local.preference_recipe import DpoRecipe, KtoRecipe
from trajkit.training.local.preference_tokens import Verdicts, verdicts_of
from trajkit.training.local.preference_trainer import EXTRA
from trajkit.training.local.recipe import LocalRecipe, deciding
from trajkit.training.local.replicas import check_replicas, n_replicas
from trajkit.training.local.reports import check_reports
from trajkit.training.local.rows import write_rows
from trajkit.training.local.template import save_tokenizer, spelled
from trajkit.training.local.tokenised import Limit, open_tokens
from trajkit.training.new_job import Written, prepared_job
from trajkit.training.origin import origin_of
from trajkit.training.runs import Runs
from trajkit.training.side import Side, digest_of, leak_of, open_side

_DECIDING = ("torch", "transformers", "peft", "trl", "accelerate", "tokenizers", "numpy")
TRAIN_TOKENS, VALIDATION_TOKENS = "train.arrow", "validation.arrow"


class LocalRequest(Model):
    """What is trained on what."""

    method: Literal["sft", "dpo", "kto"] = "sft"
    """How it learns."""
    base: str
    """Folder or id of the model."""
    train: Path
    """The store that is learned; for `dpo` pairs, for `kto` either."""
    validation: Path | None = None
    """The same that measures on the way; None for none."""
    recipe: DpoRecipe | KtoRecipe | LocalRecipe = LocalRecipe()
    """With which settings."""
    unit: Unit = Unit.EPISODE
    """What becomes a row of `sft`; with `episode` a conversation is read once and all its answers learned."""
    thoughts: Thoughts = Thoughts.KEEP
    """What becomes of thoughts."""
    overlong: Overlong = Overlong.ERROR
    """What becomes of rows of `sft` that are too long."""
    good: str | None = None
    """For `kto` on a store: an SQL condition on episodes that says which answers are good; None for their
    outcome."""
    tokenizer: str | None = None
    """Folder or id of a tokenizer that stands in the place of the model's own."""
    chat_template: str | None = None
    """The same for its chat template: `chatml`, `plain`, or a file."""
    allow_leak: bool = False
    """Train although the two sides share what they must not; the report says so."""


class Prepared(NamedTuple):
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
    """For `kto`, how many answers are good and how many are bad."""
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
        name: Name of the job; None for one made of the model and the data.
        on_progress: Told what is being done, how far it is, and of how much (None when unknown).

    Raises:
        RequestError: The model has no tokenizer or chat template, or the name is taken.
        DataError: The sides leak, a row is too long, or a row teaches nothing.
        NothingMatched: There is no row.
        StoreError: The pairs or a store cannot be read.
        MissingExtra: A package of the method, or of who is to be told of losses, is not installed.
    """
    is_sft = request.method == "sft"
    check_reports(request.recipe)
    check_optimizer(request.recipe)
    if is_sft:
        check_replicas(request.recipe)
    request = request.model_copy(update={"base": settled(request.base)})
    sides = {TRAIN_TOKENS: open_side(request.train, request.method, good=request.good)}
    if request.validation is not None:
        sides[VALIDATION_TOKENS] = open_side(request.validation, request.method, good=request.good)
    train = sides[TRAIN_TOKENS]
    on_progress("looking for leaks", 0, None)
    report = leak_of(train, sides.get(VALIDATION_TOKENS)).checked(allow_leak=request.allow_leak)
    request = request.model_copy(update={"recipe": _staged(request, train)})
    recipe = _resolved(request)
    key = key_of(
        target="local",
        method=request.method,
        base=request.base,
        recipe=deciding(recipe),
        digests=tuple(map(digest_of, sides.values())),
    )
    on_progress("measuring the model", 0, None)  # here, at the latest, torch and transformers are imported
    if not is_sft:
        need("trl", extra=EXTRA)
    sizes = measured(request.base, request.recipe)

    def write(folder: Path) -> Written:
        tokenizer = save_tokenizer(
            request.base, folder / TOKENIZER, tokenizer=request.tokenizer, template=request.chat_template
        )
        limit = Limit.of_model(request.recipe.max_length, sizes, request.base)
        made = {
            file: write_rows(
                side,
                folder / file,
                tokenizer,
                limit,
                method=request.method,
                unit=request.unit,
                thoughts=request.thoughts,
                overlong=request.overlong,
                good=request.good,
                is_learned=side is train,
                on_progress=on_progress,
            )
            for file, side in sides.items()
        }
        return Written(made[TRAIN_TOKENS], made.get(VALIDATION_TOKENS))

    job, is_new = prepared_job(
        runs,
        write,
        name=name,
        data=request.train,
        train=train,
        leak=report,
        packages=[package for package in _DECIDING if package != "trl" or not is_sft],
        key=key,
        target="local",
        method=request.method,
        base=request.base,
        recipe=recipe,
    )
    tokens = runs.path(job.job_id) / TRAIN_TOKENS
    verdicts = verdicts_of(tokens) if request.method == "kto" else None
    return Prepared(job, report, _n_steps(job, tokens, request.recipe), sizes, verdicts, is_new)


def _staged(request: LocalRequest, train: Side) -> LocalRecipe:
    """The recipe with what is not said of the episodes that it plays, from the store; all of it checked."""
    recipe = request.recipe
    if recipe.play is None or not isinstance(train, Dataset):
        return recipe
    if request.validation is None:
        raise RequestError("the model plays at each validation, and nothing measures", hint="give --val")
    stage = open_stage(staged(recipe.play, train, origin_of(train)), reserved())
    return recipe.model_copy(update={"play": stage.recipe})


def _resolved(request: LocalRequest) -> JsonObject:
    """Everything that decides what comes out, but for the data and the model."""
    own = {"unit", "overlong"} if request.method == "sft" else {"good"}
    said = request.model_dump(mode="json", include={"thoughts", "tokenizer", "allow_leak"} | own)
    return request.recipe.model_dump(mode="json") | said | {"chat_template": spelled(request.chat_template)}


def _n_steps(job: TuneJob, tokens: Path, recipe: LocalRecipe) -> int:
    """Steps of the optimizer."""
    if job.method != "sft":
        return recipe.n_steps(job.learned.n_rows)
    n_lines = job.learned.n_rows
    if recipe.packing and recipe.max_steps is None:
        n_lines = len(pack(open_tokens(tokens).lengths, recipe.max_length))
    return recipe.n_steps(n_lines, n_replicas=n_replicas(recipe))
