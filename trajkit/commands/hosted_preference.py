"""Tune a model on pairs at a service: what is sent and paid for needs `yes=True`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit.commands.hosted_training import train_at
from trajkit.commands.place import Place, Settings

if TYPE_CHECKING:
    from trajkit.commands.sides import Sides
    from trajkit.training.job import TuneJob


def dpo_openai(
    *,
    model: str | None = None,
    profile: Literal["openai", "azure", "nebius", "bedrock", "other"] | None = None,
    base_url: str | None = None,
    n_epochs: str | int | None = None,
    batch_size: str | int | None = None,
    learning_rate_multiplier: str | float | None = None,
    seed: int | None = None,
    suffix: str | None = None,
    beta: str | float | None = None,
    train: Place | None = None,
    val: Place | None = None,
    val_fraction: float = 0.1,
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    set: Settings | None = None,
    max_length: int | None = None,
    overlong: Literal["error", "drop", "trim-history"] = "error",
    tokenizer: str | None = None,
    prices: Place | None = None,
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on pairs wherever OpenAI's fine-tuning API is spoken: the better answer wins.

    The same data, model and recipe are never paid for twice: the job that is there is found.

    Args:
        model: The model to start from; None for that of trajkit.toml, or the usual one.
        profile: Who speaks it there; None for whose address it is.
        base_url: Address of the API; None for that of the environment, or the service's own.
        n_epochs: Passes over the rows; None for the service's own choice.
        batch_size: Rows in a batch; None for the service's own choice.
        learning_rate_multiplier: Times the service's own learning rate; None for its own choice.
        seed: Of the job; None for one drawn by the service.
        suffix: In the name of the tuned model.
        beta: The higher, the nearer it stays to the model; None for the service's own.
        train: What is learned; None for the last that was written here.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        thoughts: What becomes of thoughts.
        set: Anything else that the service takes, by its name there; `a.b` is the field b of a.
        max_length: Most tokens of a row; None for the model's own limit.
        overlong: What becomes of rows that are too long.
        tokenizer: What counts tokens.
        prices: A YAML file with prices and dates of your own.
        name: The job's name; None for one of the model and the store.
        allow_leak: Train although the stores share what they must not.
        runs: The folder where jobs are kept.
        dry_run: Send nothing, and give the job as it would be, with its estimate.
        yes: Send the rows, and pay for the job.
        detach: Do not wait for its end.

    Returns:
        The job; its status says how it ended.

    Raises:
        RequestError: The job would be paid for and `yes` is not given, or a value cannot be.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    asked = locals()
    return train_at(
        "dpo",
        "openai",
        {"profile": profile, "base_url": base_url},
        asked,
        lambda made: _sides(asked, made),
        ("n_epochs", "batch_size", "learning_rate_multiplier", "seed", "suffix", "beta"),
    )


def dpo_together(
    *,
    model: str | None = None,
    base_url: str | None = None,
    n_epochs: int | None = None,
    learning_rate: float | None = None,
    batch_size: str | int | None = None,
    lora_r: int | None = None,
    dpo_beta: float | None = None,
    random_seed: int | None = None,
    suffix: str | None = None,
    train: Place | None = None,
    val: Place | None = None,
    val_fraction: float = 0.1,
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    set: Settings | None = None,
    max_length: int | None = None,
    overlong: Literal["error", "drop", "trim-history"] = "error",
    tokenizer: str | None = None,
    prices: Place | None = None,
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on pairs at Together: the better answer wins.

    The same data, model and recipe are never paid for twice: the job that is there is found.

    Args:
        model: The model to start from; None for that of trajkit.toml.
        base_url: Address of the API; None for that of the environment, or the service's own.
        n_epochs: Passes over the rows; None for the service's own choice.
        learning_rate: At its highest; None for the service's own, or the usual one.
        batch_size: Rows in a batch; None for the service's own choice.
        lora_r: Rank of the adapter; None for the model's own.
        dpo_beta: The higher, the nearer it stays to the model; None for the service's own.
        random_seed: Of first weights and order; None for the service's own.
        suffix: In the name of the tuned model.
        train: What is learned; None for the last that was written here.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        thoughts: What becomes of thoughts.
        set: Anything else that the service takes, by its name there; `a.b` is the field b of a.
        max_length: Most tokens of a row; None for the model's own limit.
        overlong: What becomes of rows that are too long.
        tokenizer: What counts tokens.
        prices: A YAML file with prices and dates of your own.
        name: The job's name; None for one of the model and the store.
        allow_leak: Train although the stores share what they must not.
        runs: The folder where jobs are kept.
        dry_run: Send nothing, and give the job as it would be, with its estimate.
        yes: Send the rows, and pay for the job.
        detach: Do not wait for its end.

    Returns:
        The job; its status says how it ended.

    Raises:
        RequestError: The job would be paid for and `yes` is not given, or a value cannot be.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    asked = locals()
    return train_at(
        "dpo",
        "together",
        {"base_url": base_url},
        asked,
        lambda made: _sides(asked, made),
        ("n_epochs", "learning_rate", "batch_size", "lora_r", "dpo_beta", "random_seed", "suffix"),
    )


def dpo_fireworks(
    *,
    model: str | None = None,
    base_url: str | None = None,
    account: str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    lora_rank: int | None = None,
    beta: float | None = None,
    output_model: str | None = None,
    train: Place | None = None,
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    set: Settings | None = None,
    max_length: int | None = None,
    overlong: Literal["error", "drop", "trim-history"] = "error",
    tokenizer: str | None = None,
    prices: Place | None = None,
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on pairs at Fireworks: the better answer wins.

    The same data, model and recipe are never paid for twice: the job that is there is found.

    Args:
        model: The model to start from; None for that of trajkit.toml.
        base_url: Address of the API; None for that of the environment, or the service's own.
        account: Whose jobs; None for that of the environment, or the only one that the key is of.
        epochs: Passes over the rows; None for 3.
        learning_rate: At its highest; None for the service's own, or the usual one.
        lora_rank: Rank of the adapter; None for the service's own.
        beta: The higher, the nearer it stays to the model; None for the service's own.
        output_model: In the name of the tuned model; None for the job's name.
        train: What is learned; None for the last that was written here.
        thoughts: What becomes of thoughts.
        set: Anything else that the service takes, by its name there; `a.b` is the field b of a.
        max_length: Most tokens of a row; None for the model's own limit.
        overlong: What becomes of rows that are too long.
        tokenizer: What counts tokens.
        prices: A YAML file with prices and dates of your own.
        name: The job's name; None for one of the model and the store.
        allow_leak: Train although the stores share what they must not.
        runs: The folder where jobs are kept.
        dry_run: Send nothing, and give the job as it would be, with its estimate.
        yes: Send the rows, and pay for the job.
        detach: Do not wait for its end.

    Returns:
        The job; its status says how it ended.

    Raises:
        RequestError: The job would be paid for and `yes` is not given, or a value cannot be.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    asked = locals()
    return train_at(
        "dpo",
        "fireworks",
        {"base_url": base_url, "account": account},
        asked,
        lambda made: _sides({**asked, "val": None, "val_fraction": 0.0}, made),
        ("epochs", "learning_rate", "lora_rank", "beta", "output_model"),
    )


def _sides(asked: Mapping[str, Any], made: list[Path]) -> Sides:
    from trajkit.commands.sides import pair_sides

    train, val = (None if asked[side] is None else str(Path(asked[side])) for side in ("train", "val"))
    return pair_sides("dpo", train, val, asked["val_fraction"], made=made)
