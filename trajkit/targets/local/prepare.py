"""What comes before a training on this machine: rows, their tokens, the proof that nothing leaked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import trajkit
from trajkit._files import building_folder
from trajkit.convert.conversion import Conversion
from trajkit.convert.file import convert
from trajkit.curate.leak import leak
from trajkit.curate.leak_report import LeakReport
from trajkit.errors import RequestError
from trajkit.formats.base import Unit
from trajkit.formats.think import Thoughts
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.formats.weighted import WEIGHTED
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.engine import connect
from trajkit.store.view import create_views
from trajkit.targets.job import JobData, TuneJob, key_of
from trajkit.targets.local.packing import pack
from trajkit.targets.local.recipe import LocalRecipe
from trajkit.targets.local.tokenised import open_tokens, tokenise
from trajkit.targets.runs import JOB_FILE, Runs

_DECIDING = ("torch", "transformers", "peft", "accelerate", "tokenizers", "numpy")
TRAIN_TOKENS, VALIDATION_TOKENS = "train.arrow", "validation.arrow"


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
    tokenizer = _tokenizer(request.base)
    train = open_dataset(request.train)
    validation = None if request.validation is None else open_dataset(request.validation)
    on_progress("looking for leaks", 0, None)
    report = leak(request.train, request.validation).checked(allow_leak=request.allow_leak)
    digests = tuple(data.store.manifest.digest for data in (train, validation) if data is not None)
    recipe = _resolved(request)
    key = key_of(target="local", method="sft", base=request.base, recipe=recipe, digests=digests)
    if (found := runs.find(key)) is not None and (name is None or name == found.job_id):
        return Prepared(found, report, _n_steps(found, runs, request.recipe), is_new=False)
    job_id = name or runs.new_name(f"{Path(request.base).name}-{Path(request.train).name}")
    if runs.path(job_id).exists():
        raise RequestError(f"there is a job {job_id!r} already", hint="choose another --name")
    with building_folder(runs.path(job_id)) as folder:
        sides = {TRAIN_TOKENS: train} | ({} if validation is None else {VALIDATION_TOKENS: validation})
        made = {
            file: _rows(data, folder, file, tokenizer, request, on_progress) for file, data in sides.items()
        }
        job = TuneJob(
            job_id=job_id,
            key=key,
            target="local",
            base=request.base,
            recipe=recipe,
            train=made[TRAIN_TOKENS],
            validation=made.get(VALIDATION_TOKENS),
            leak=report.model_dump(mode="json"),
            versions=_versions(),
            code_commit=_commit(),
            created_at=datetime.now(UTC),
            **_origin(train),
        )
        (folder / JOB_FILE).write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return Prepared(job, report, _n_steps(job, runs, request.recipe), is_new=True)


def _tokenizer(base: str) -> ChatTemplate:
    tokenizer = ChatTemplate(base)
    if tokenizer.has_marks is None:
        raise RequestError(
            f"{base} has no chat template, which says how a conversation is written for it",
            hint="put one into its folder as chat_template.jinja, with {% generation %} around the answers",
        )
    return tokenizer


def _resolved(request: LocalRequest) -> JsonObject:
    said = request.model_dump(mode="json", include={"unit", "thoughts", "allow_leak"})
    return request.recipe.model_dump(mode="json") | said


def _rows(
    data: Dataset,
    folder: Path,
    file: str,
    tokenizer: ChatTemplate,
    request: LocalRequest,
    on_progress: Callable[[str, int, int | None], None],
) -> JobData:
    lines = folder / file.replace(".arrow", ".jsonl")
    made: Conversion = convert(
        data,
        lines,
        to=WEIGHTED,
        unit=request.unit,
        thoughts=request.thoughts,
        progress=lambda n_done, n_total: on_progress("writing rows", n_done, n_total),
    )
    tally = tokenise(
        lines,
        folder / file,
        tokenizer,
        max_length=request.recipe.max_length,
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
        losses=made.losses,
    )


def _n_steps(job: TuneJob, runs: Runs, recipe: LocalRecipe) -> int:
    """Steps of the optimizer."""
    if recipe.max_steps is not None:
        return recipe.max_steps
    n_lines = job.train.n_rows
    if recipe.packing:
        n_lines = len(pack(open_tokens(runs.path(job.job_id) / TRAIN_TOKENS).lengths, recipe.max_length))
    n_batches = -(-n_lines // recipe.per_device_train_batch_size)
    per_epoch = -(-n_batches // recipe.gradient_accumulation_steps)
    return max(1, round(per_epoch * recipe.num_train_epochs))


def _origin(train: Dataset) -> dict[str, object]:
    """The function and the variants that the learned steps are of."""
    with connect() as connection:
        create_views(connection, train.store)
        ((functions, variants),) = connection.execute(
            "SELECT list_sort(list(DISTINCT function_name)), list_sort(list(DISTINCT variant_name))"
            " FROM steps WHERE loss_weight > 0"
        ).fetchall()
    known = [name for name in functions or () if name is not None]
    return {
        "function": known[0] if len(known) == 1 else None,
        "variants": tuple(name for name in variants or () if name is not None),
    }


def _versions() -> dict[str, str]:
    found = {"trajkit": trajkit.__version__}
    for name in _DECIDING:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the working folder's repository, and whether there is more than that."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
