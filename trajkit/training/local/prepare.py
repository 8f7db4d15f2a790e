"""Prepare a training on this machine: rows, their tokens, and the leak check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trajkit._core.lazy import need
from trajkit._core.settings import reserved
from trajkit.curation.leaks.report import LeakReport
from trajkit.curation.rows.request import Overlong
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.base import Format, Unit
from trajkit.formats.chat.think import Thoughts
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.formats.trl import TRL_KTO, TRL_PREFERENCE, WEIGHTED
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset
from trajkit.training.job import JobData, TuneJob, key_of
from trajkit.training.local.arguments import check_optimizer, check_reports
from trajkit.training.local.base_model import Sizes, measured, settled
from trajkit.training.local.outcome.finish import TOKENIZER
from trajkit.training.local.play import open_stage, staged
from trajkit.training.local.preferences.recipe import DpoRecipe, KtoRecipe
from trajkit.training.local.preferences.tokens import Verdicts, tokenise_preferences, verdicts_of
from trajkit.training.local.preferences.train import EXTRA
from trajkit.training.local.recipe import LocalRecipe, deciding
from trajkit.training.local.running.replicas import check_replicas, n_replicas
from trajkit.training.local.timing import estimated
from trajkit.training.local.tokens.batch import pack_rows
from trajkit.training.local.tokens.template import save_tokenizer, spelled
from trajkit.training.local.tokens.tokenised import Limit, open_tokens, tokenise
from trajkit.training.new_job import (
    Side,
    Written,
    digest_of,
    leak_of,
    open_side,
    origin_of_side,
    prepared_job,
    written_rows,
)
from trajkit.training.origin import origin_of
from trajkit.training.runs import Runs

_DECIDING = ("torch", "transformers", "peft", "trl", "accelerate", "tokenizers", "numpy")
TRAIN_TOKENS, VALIDATION_TOKENS = "train.arrow", "validation.arrow"
_FORMS: dict[str, Format] = {
    "sft": WEIGHTED,
    # without the rules of a hosted service: these rows stay on this machine
    "dpo": replace(TRL_PREFERENCE, target=None),
    "kto": replace(TRL_KTO, target=None),
}
_ENDLESS = "end of turn that the chat template does not write"
"""Loss of conversion: without an end token, the model cannot learn to stop."""


class LocalRequest(Model):
    """A training to prepare."""

    method: Literal["sft", "dpo", "kto"] = "sft"
    """Training method."""
    base: str
    """Folder or id of the base model."""
    train: Path
    """Training data: a store; pairs for `dpo`; either for `kto`."""
    validation: Path | None = None
    """Validation data of the same kind; None for none."""
    recipe: DpoRecipe | KtoRecipe | LocalRecipe = LocalRecipe()
    """Settings of the training."""
    unit: Unit = Unit.EPISODE
    """Content of an `sft` row; with `episode`, a conversation is one row with all its completions."""
    thoughts: Thoughts = Thoughts.KEEP
    """Treatment of thoughts."""
    overlong: Overlong = Overlong.ERROR
    """Treatment of `sft` rows that are too long."""
    good: str | None = None
    """For `kto` on a store: SQL condition on episodes whose completions are good; None for their outcome."""
    tokenizer: str | None = None
    """Folder or id of a tokenizer that replaces the model's own."""
    chat_template: str | None = None
    """Chat template that replaces the tokenizer's own: `chatml`, `plain`, or a file."""
    allow_leak: bool = False
    """Train although training and validation data leak; the report records it."""


class Prepared(NamedTuple):
    """A job that can be started."""

    job: TuneJob
    """The saved job."""
    leak: LeakReport
    """Result of the leak check."""
    n_steps: int
    """Steps of the optimizer, unless the training stops early."""
    sizes: Sizes
    """Size of the model, and the number of trained weights."""
    verdicts: Verdicts | None
    """For `kto`, the numbers of good and bad completions."""
    is_new: bool
    """False when the same job existed already."""


def prepare(
    request: LocalRequest,
    runs: Runs,
    *,
    name: str | None = None,
    on_progress: Callable[[str, int, int | None], None] = lambda what, n_done, n_total: None,
) -> Prepared:
    """Tokenise the rows of a job, and save the job. Nothing is started.

    The same data, model and recipe give the same job, which is then found instead of created.

    Args:
        request: The training to prepare.
        runs: Folder of the jobs.
        name: Name of the job; None for one made of the model and the data.
        on_progress: Called with the current phase, the amount done, and the total (None when unknown).

    Raises:
        RequestError: The model has no tokenizer or chat template, or the name is taken.
        DataError: The sides leak, a row is too long, or a row trains no token.
        NothingMatched: There is no row.
        StoreError: The pairs or a store cannot be read.
        MissingExtra: A package of the method, or of `report_to`, is not installed.
    """
    is_sft = request.method == "sft"
    check_reports(request.recipe)
    check_optimizer(request.recipe)
    check_replicas(request.recipe, request.method)
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
            file: _write_side(request, side, folder / file, tokenizer, limit, on_progress)
            for file, side in sides.items()
        }
        return Written(made[TRAIN_TOKENS], made.get(VALIDATION_TOKENS))

    job, is_new = prepared_job(
        runs,
        write,
        name=name,
        data=request.train,
        origin=lambda: origin_of_side(train),
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
    n_steps = _n_steps(job, tokens, request.recipe, sizes)
    if is_new:
        on_progress("measuring this machine", 0, None)
        lengths = open_tokens(tokens).lengths if is_sft else None
        expected = estimated(
            sizes,
            request.recipe,
            job.learned,
            job.validation,
            n_steps=n_steps,
            method=job.method,
            lengths=lengths,
        )
        job = runs.save(job.model_copy(update={"estimate": expected}))
    return Prepared(job, report, n_steps, sizes, verdicts, is_new)


def _staged(request: LocalRequest, train: Side) -> LocalRecipe:
    """Return the recipe with the settings of its played episodes completed from the store, and checked."""
    recipe = request.recipe
    if recipe.play is None or not isinstance(train, Dataset):
        return recipe
    if request.validation is None:
        raise RequestError("the model plays at each validation, but there is none", hint="give --val")
    stage = open_stage(staged(recipe.play, train, origin_of(train)), reserved())
    return recipe.model_copy(update={"play": stage.recipe})


def _resolved(request: LocalRequest) -> JsonObject:
    """Return all settings that affect the result, except for the data and the model."""
    own = {"unit", "overlong"} if request.method == "sft" else {"good"}
    more = request.model_dump(mode="json", include={"thoughts", "tokenizer", "allow_leak"} | own)
    return request.recipe.model_dump(mode="json") | more | {"chat_template": spelled(request.chat_template)}


def _n_steps(job: TuneJob, tokens: Path, recipe: LocalRecipe, sizes: Sizes) -> int:
    """Return the number of steps of the optimizer."""
    if job.method != "sft":
        return recipe.n_steps(job.learned.n_rows)
    n_lines = job.learned.n_rows
    if recipe.packing and recipe.max_steps is None:
        n_lines = len(pack_rows(open_tokens(tokens), recipe.max_length, shares=sizes.can_share))
    return recipe.n_steps(n_lines, n_replicas=n_replicas(recipe))


def _write_side(
    request: LocalRequest,
    side: Side,
    goal: Path,
    tokenizer: ChatTemplate,
    limit: Limit,
    on_progress: Callable[[str, int, int | None], None],
) -> JobData:
    """Write the tokens of one side of a job into a file, and their text beside it."""
    method = request.method
    lines = goal.with_suffix(".jsonl")
    options: dict[str, Any] = {"thoughts": request.thoughts}
    if method == "sft":
        options["unit"] = request.unit
        if request.overlong != Overlong.ERROR:  # otherwise tokens would be counted twice
            tokens = {"max_length": limit.n_tokens, "tokenizer": str(goal.parent / TOKENIZER)}
            options |= {"overlong": request.overlong, **tokens}
    elif request.good is not None:
        options["good"] = request.good
    try:
        made = written_rows(side, lines, _FORMS[method], on_progress, **options)
    except NothingMatched as error:
        if goal.name == TRAIN_TOKENS:
            raise
        raise NothingMatched(
            f"no validation rows: {error.message}", hint="more episodes, another --val, or --val-fraction 0"
        ) from error

    def counted(n_done: int) -> None:
        on_progress("counting tokens", n_done, made.n_rows)

    if method == "sft":
        tally = tokenise(lines, goal, tokenizer, limit=limit, on_progress=counted)
    else:
        tally = tokenise_preferences(lines, goal, tokenizer, method=method, limit=limit, on_progress=counted)
    if method == "kto":
        found = verdicts_of(goal)
        for n, there, missing in ((found.n_bad, "good", "bad"), (found.n_good, "bad", "good")):
            if not n:
                raise DataError(
                    f"every completion of {made.store} is {there}: kto needs {missing} ones, too",
                    hint="--good selects the good episodes; where one side is small, --val-fraction 0",
                )
    return JobData.of(
        made,
        n_rows=tally.n_rows,
        n_tokens=tally.n_tokens,
        n_learned_tokens=tally.n_learned,
        longest=tally.longest,
        losses=made.losses | ({_ENDLESS: tally.n_endless} if tally.n_endless else {}),
    )
