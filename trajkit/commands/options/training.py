"""Options of the commands that train: common ones, local ones, and those of services."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypedDict

from trajkit.commands.options.types import Option, Place, RunsFolder, Settings, StoreLike
from trajkit.commands.training.sides import FRACTION


def read_field(typed: str) -> Any:
    """A field of a recipe: null, lists and objects are JSON; the recipe knows the type of all others."""
    return read_json(typed) if typed == "null" or typed[:1] in ("[", "{") else typed


def read_json(typed: str) -> Any:
    """A setting as JSON if it is JSON, else as typed: only the service knows its type."""
    try:
        return json.loads(typed)
    except ValueError:
        return typed


class StoreOptions(TypedDict, total=False):
    """The steps of a store as training data."""

    train: Annotated[StoreLike | None, Option(metavar="STORE")]
    """Store to train on. Default: the last store written here."""
    unit: Annotated[Literal["episode", "step"], Option(default="episode")]
    """Make a row of each append-only conversation with all its answers, or of each step."""


class PairOptions(TypedDict, total=False):
    """Pairs as training data."""

    train: Annotated[StoreLike | None, Option(metavar="PAIRS")]
    """Pairs to train on. Default: the last pairs written here."""


class ValidationOptions(TypedDict, total=False):
    """Validation data."""

    val: Annotated[StoreLike | None, Option(metavar="STORE|PAIRS")]
    """Validation data. Default: the side `val` of the split that the training data belongs to, else a part of
    the training data."""
    val_fraction: Annotated[float, Option(default=FRACTION, least=0, most=0.5)]
    """Share of the training data to hold out for validation, in whole worlds or groups of pairs; 0 for
    none."""


class ModelOptions(TypedDict, total=False):
    """How to train a model locally, with the option names of peft and transformers."""

    learning_rate: float | None
    """Peak learning rate."""
    per_device_train_batch_size: int | None
    """Rows in a batch."""
    r: int | None
    """Rank of the adapter."""
    lora_alpha: float | None
    """The adapter is scaled by alpha / r."""
    lora_dropout: float | None
    """Dropout rate of the adapter's inputs."""
    seed: int | None
    """Seed of the initial weights and of the order of rows."""
    set: Annotated[Settings | None, Option(is_repeated=True, metavar="NAME=VALUE", read=read_field)]
    """Any other field of the recipe, such as lora.use_dora=true, lora=null (all weights), optim=sgd,
    gradient_checkpointing=true or early_stopping_patience=3; may be repeated."""
    auto_batch: bool
    """If memory runs out, halve the batch, keep the rows per step, and continue."""
    merge: bool
    """Also write adapter and base as one model, which needs no peft."""
    report_to: Literal["wandb", "tensorboard"] | None
    """Where to report losses."""
    tokenizer: Annotated[str | None, Option(metavar="DIR|ID")]
    """Tokenizer in place of the model's."""
    chat_template: Annotated[str | None, Option(metavar="NAME|FILE")]
    """Chat template in place of the tokenizer's: chatml, plain, or a file (Jinja)."""


class LocalOptions(ModelOptions, total=False):
    """How to train on rows."""

    num_train_epochs: float | None
    """Passes over the rows."""
    max_steps: int | None
    """Optimizer steps, instead of epochs."""
    gradient_accumulation_steps: int | None
    """Batches per optimizer step."""
    max_length: int | None
    """Maximum tokens per row; a longer row is an error."""
    config: Annotated[Place | None, Option(metavar="FILE")]
    """Settings in YAML, by axolotl's names. Options that differ from their defaults override them."""
    preset: Annotated[str | None, Option(metavar="NAME")]
    """Settings that suit a family of models: llama or qwen. A file and options override them."""


class PreferenceOptions(LocalOptions, total=False):
    """Options that DPO and KTO share."""

    beta: float | None
    """The higher, the closer the model stays to the one it starts from."""


class LengthOptions(TypedDict, total=False):
    """How to treat long rows."""

    overlong: Annotated[Literal["error", "drop", "trim-history"], Option(default="error")]
    """Refuse rows that are too long, drop them, or trim their history."""


class HostedOptions(LengthOptions, total=False):
    """Options of every service."""

    model: Annotated[str | None, Option(metavar="NAME")]
    """Model to start from. Default: `model` of trajkit.toml, else the usual one of the profile."""
    base_url: Annotated[str | None, Option(metavar="URL")]
    """Address of the API. Default: OPENAI_BASE_URL, TOGETHER_BASE_URL or FIREWORKS_BASE_URL of the
    environment, else the service's own."""
    set: Annotated[Settings | None, Option(is_repeated=True, metavar="NAME=VALUE", read=read_json)]
    """Anything else that the service takes, by its name there; a.b is the field b of a. May be repeated."""
    max_length: int | None
    """Maximum tokens per row. Default: the model's own limit."""
    tokenizer: Annotated[str | None, Option(metavar="NAME")]
    """Count tokens with this tokenizer, as in `trajkit validate`."""
    prices: Annotated[Place | None, Option(metavar="FILE")]
    """A YAML file with prices and dates of your own, as in `trajkit tokens`."""


class OpenAIRecipe(TypedDict, total=False):
    """Hyperparameters of OpenAI's fine-tuning API."""

    n_epochs: Annotated[str | int | None, Option(metavar="N|auto")]
    """Passes over the rows. Default: auto."""
    batch_size: Annotated[str | int | None, Option(metavar="N|auto")]
    """Rows in a batch. Default: auto."""
    learning_rate_multiplier: Annotated[str | float | None, Option(metavar="X|auto")]
    """Factor on the service's own learning rate. Default: auto."""
    seed: int | None
    """Seed of the job. Default: drawn by the service."""
    suffix: Annotated[str | None, Option(metavar="NAME")]
    """Part of the tuned model's name; up to 64 characters."""


class OpenAIOptions(HostedOptions, OpenAIRecipe, total=False):
    """Options at OpenAI, and at services with its fine-tuning API."""

    profile: Literal["openai", "azure", "nebius", "bedrock", "other"] | None
    """The service behind the API. Default: the one that the address belongs to."""


class TogetherRecipe(TypedDict, total=False):
    """Hyperparameters of Together."""

    n_epochs: int | None
    """Passes over the rows. Default: 3."""
    learning_rate: float | None
    """Peak learning rate. Default: 0.0002; 0.00001 when every weight is trained."""
    batch_size: Annotated[str | int | None, Option(metavar="N|max")]
    """Rows in a batch. Default: max."""
    lora_r: int | None
    """Rank of the adapter. Default: the model's own."""
    random_seed: int | None
    """Seed of the initial weights and of the order of rows. Default: the service's own."""
    suffix: Annotated[str | None, Option(metavar="NAME")]
    """Part of the tuned model's name. Default: the job's name."""


class FireworksRecipe(TypedDict, total=False):
    """Hyperparameters of Fireworks."""

    epochs: int | None
    """Passes over the rows. Default: 3."""
    learning_rate: float | None
    """Peak learning rate. Default: the service's own."""
    lora_rank: int | None
    """Rank of the adapter. Default: the service's own."""
    output_model: Annotated[str | None, Option(metavar="NAME")]
    """Part of the tuned model's name. Default: the job's name."""


class FireworksOptions(HostedOptions, FireworksRecipe, total=False):
    """Options at Fireworks."""

    account: Annotated[str | None, Option(metavar="NAME")]
    """Account of the jobs. Default: FIREWORKS_ACCOUNT_ID, else the only account of the key."""


class JobOptions(TypedDict, total=False):
    """Options of every job."""

    name: Annotated[str | None, Option(metavar="NAME")]
    """Name of the job. Default: made from the model and the data."""
    runs: Annotated[RunsFolder, Option(default="runs", metavar="FOLDER")]
    """Folder where jobs are kept."""
    dry_run: bool
    """Print the plan and train nothing."""
    yes: bool
    """Skip the confirmation."""
    detach: bool
    """Do not wait for the end: `trajkit jobs wait` does."""


class TrainingOptions(JobOptions, total=False):
    """Options of every training on rows."""

    thoughts: Annotated[Literal["keep", "strip", "think-text"], Option(default="keep")]
    """Keep thoughts in the rows, strip them, or write them as text between think tags."""
    allow_leak: bool
    """Train even if training and validation data leak."""
