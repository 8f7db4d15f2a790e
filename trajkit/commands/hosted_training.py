"""Tune a model at a service: what is sent and paid for needs `yes=True`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit.commands.place import Place, Settings, StoreLike, store_path

if TYPE_CHECKING:
    from trajkit.commands.sides import Sides
    from trajkit.training.job import TuneJob


def sft_openai(
    *,
    model: str | None = None,
    profile: Literal["openai", "azure", "nebius", "bedrock", "other"] | None = None,
    base_url: str | None = None,
    n_epochs: str | int | None = None,
    batch_size: str | int | None = None,
    learning_rate_multiplier: str | float | None = None,
    seed: int | None = None,
    suffix: str | None = None,
    train: StoreLike | None = None,
    val: StoreLike | None = None,
    val_fraction: float = 0.1,
    train_function: str | None = None,
    unit: Literal["episode", "step"] = "episode",
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
    """Tune a model wherever OpenAI's fine-tuning API is spoken: OpenAI, Azure, Nebius, any URL.

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
        train: What is learned; None for the last that was written here.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        train_function: Whose steps are learned; needed where the store has steps of several functions.
        unit: What becomes a row.
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
        "sft",
        "openai",
        {"profile": profile, "base_url": base_url},
        asked,
        lambda made: _sides(asked, made),
        ("n_epochs", "batch_size", "learning_rate_multiplier", "seed", "suffix"),
    )


def sft_together(
    *,
    model: str | None = None,
    base_url: str | None = None,
    n_epochs: int | None = None,
    learning_rate: float | None = None,
    batch_size: str | int | None = None,
    n_evals: int | None = None,
    lora: bool | None = None,
    lora_r: int | None = None,
    lora_alpha: int | None = None,
    lora_dropout: float | None = None,
    random_seed: int | None = None,
    suffix: str | None = None,
    train: StoreLike | None = None,
    val: StoreLike | None = None,
    val_fraction: float = 0.1,
    train_function: str | None = None,
    unit: Literal["episode", "step"] = "episode",
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
    """Tune a model at Together.

    The same data, model and recipe are never paid for twice: the job that is there is found.

    Args:
        model: The model to start from; None for that of trajkit.toml.
        base_url: Address of the API; None for that of the environment, or the service's own.
        n_epochs: Passes over the rows; None for the service's own choice.
        learning_rate: At its highest; None for the service's own, or the usual one.
        batch_size: Rows in a batch; None for the service's own choice.
        n_evals: Validations on the way; None for one per epoch, with rows that measure.
        lora: Train an adapter, or every weight; None for an adapter.
        lora_r: Rank of the adapter; None for the model's own.
        lora_alpha: The adapter is scaled by alpha / r; None for twice the rank.
        lora_dropout: Share of its inputs that a step leaves out; None for 0.
        random_seed: Of first weights and order; None for the service's own.
        suffix: In the name of the tuned model.
        train: What is learned; None for the last that was written here.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        train_function: Whose steps are learned; needed where the store has steps of several functions.
        unit: What becomes a row.
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
        "sft",
        "together",
        {"base_url": base_url},
        asked,
        lambda made: _sides(asked, made),
        (
            "n_epochs",
            "learning_rate",
            "batch_size",
            "n_evals",
            "lora",
            "lora_r",
            "lora_alpha",
            "lora_dropout",
            "random_seed",
            "suffix",
        ),
    )


def sft_fireworks(
    *,
    model: str | None = None,
    base_url: str | None = None,
    account: str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    lora_rank: int | None = None,
    max_context_length: int | None = None,
    batch_size_samples: int | None = None,
    output_model: str | None = None,
    train: StoreLike | None = None,
    val: StoreLike | None = None,
    val_fraction: float = 0.1,
    train_function: str | None = None,
    unit: Literal["episode", "step"] = "episode",
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
    """Tune a model at Fireworks.

    The same data, model and recipe are never paid for twice: the job that is there is found.

    Args:
        model: The model to start from; None for that of trajkit.toml.
        base_url: Address of the API; None for that of the environment, or the service's own.
        account: Whose jobs; None for that of the environment, or the only one that the key is of.
        epochs: Passes over the rows; None for 3.
        learning_rate: At its highest; None for the service's own, or the usual one.
        lora_rank: Rank of the adapter; None for the service's own.
        max_context_length: Most tokens that the training reads of a row; None for the service's own.
        batch_size_samples: Rows in a batch; None for the service's own choice.
        output_model: In the name of the tuned model; None for the job's name.
        train: What is learned; None for the last that was written here.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        train_function: Whose steps are learned; needed where the store has steps of several functions.
        unit: What becomes a row.
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
        "sft",
        "fireworks",
        {"base_url": base_url, "account": account},
        asked,
        lambda made: _sides(asked, made),
        ("epochs", "learning_rate", "lora_rank", "max_context_length", "batch_size_samples", "output_model"),
    )


def train_at(
    method: str,
    target: str,
    settings: Mapping[str, str | None],
    asked: Mapping[str, Any],
    sides: Callable[[list[Path]], Sides],
    names: tuple[str, ...],
) -> TuneJob:
    """Train at a service.

    Args:
        method: `sft` or `dpo`.
        target: The service.
        settings: Where it is; None where that was not given.
        asked: Every option, by its name.
        sides: Gives what is learned, and what measures; it tells which stores it made for that.
        names: The options that are the service's own.
    """
    from trajkit.commands.sides import unless_used
    from trajkit.commands.started import default_model, train_hosted
    from trajkit.training.hosted.services import connect
    from trajkit.training.runs import Runs

    service = connect(target, {name: value for name, value in settings.items() if value is not None})
    base = asked["model"] or default_model(target, getattr(service, "usual_model", None))
    recipe = {name: asked[name] for name in names}
    with unless_used(Runs(Path(asked["runs"]))) as made:
        return train_hosted(service, base, recipe, sides(made), asked, method=method)


def _sides(asked: Mapping[str, Any], made: list[Path]) -> Sides:
    from trajkit.commands.sides import OfOneFunction, sides, which_function

    train, val = (None if asked[side] is None else store_path(asked[side]) for side in ("train", "val"))
    function = OfOneFunction(asked["train_function"], which_function)
    return sides(train, val, asked["val_fraction"], function=function, made=made)
