"""How a model is trained on this machine. Names are those of peft and of transformers' TrainingArguments."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from trajkit.schema import Model
from trajkit.schema.base import JsonObject

Positive = Annotated[int, Field(gt=0)]


def _as_tuple(value: Any) -> Any:
    """A list, as JSON has it, is as good."""
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]

WISHES = ("auto_batch", "merge", "report_to")
"""What of a recipe does not change the model: a job that is there is not another one for them."""


class LoraRecipe(Model):
    """Low-rank adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models")."""

    r: Positive = 16
    """Rank."""
    lora_alpha: Annotated[float, Field(gt=0)] = 32
    """The adapter is scaled by alpha / r, or with `use_rslora` by alpha / sqrt(r)."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs that a step leaves out."""
    target_modules: Names | Literal["all-linear"] = "all-linear"
    """Which layers get one: names or ends of names, or every linear layer but the output."""
    use_rslora: bool = False
    """Rank-stabilised scaling (Kalajdzievski 2023)."""
    use_dora: bool = False
    """Weight-decomposed adapters (Liu et al. 2024)."""


class PlayRecipe(Model):
    """Episodes that a model plays at each validation, through the prompts of a gateway's function."""

    seeds: Annotated[str, Field(min_length=1)]
    """Half-open, such as `200:220`; reserved for evaluation, and to be kept apart from those of a report."""
    env: str = ""
    """The environment; empty for that of the store."""
    tasks: Names = ()
    """Its tasks, each on every seed; none for those of the store."""
    config: str = ""
    """The gateway's `tensorzero.toml`, whose templates write the prompts."""
    function: str = ""
    """Its function; empty for that of the store."""
    variant: str = ""
    """Whose templates; empty for the store's, where it has only one."""
    history: Annotated[int, Field(ge=0)] = 8
    """Latest steps shown to the model with each observation."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Spread of the answers; 0 for the likeliest."""
    max_new_tokens: Positive = 128
    """Longest answer."""


class LocalRecipe(Model):
    """Everything that decides what comes out, but for the data and the model."""

    accumulates: ClassVar[bool] = True
    """Whether a step may take several batches (`gradient_accumulation_steps`)."""
    lora: LoraRecipe | None = LoraRecipe()
    """The adapter; None trains every weight."""
    num_train_epochs: Annotated[float, Field(gt=0)] = 3
    """Passes over the rows."""
    max_steps: Positive | None = None
    """Steps of the optimizer; None for as many as the epochs have."""
    per_device_train_batch_size: Positive = 8
    """Rows in a batch; with `packing`, lines of up to `max_length` tokens."""
    per_device_eval_batch_size: Positive = 8
    """The same for the validation split."""
    gradient_accumulation_steps: Positive = 1
    """Batches of a step."""
    auto_batch: bool = False
    """Where memory runs out, halve the batch, accumulate twice as many, go on from the last checkpoint."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    """At its highest."""
    lr_scheduler_type: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "cosine"
    """How it falls."""
    warmup_steps: Annotated[float, Field(ge=0)] = 0.03
    """Steps in which it rises; below 1, a share of all steps."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Of AdamW."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Longer gradients are cut to this length; 0 for none."""
    optim: str = "adamw_torch"
    """The optimizer, such as `paged_adamw_8bit` on a GPU."""
    max_length: Positive = 2048
    """Most tokens of a row. A longer row is an error."""
    packing: bool = False
    """Several rows in a line, which never see each other."""
    group_by_length: bool = False
    """Rows of like length in a batch, so that less of it is padding. Not with `packing`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 where the GPU has it, fp16 on older ones, fp32 on a processor."""
    load_in: Literal["4bit", "8bit"] | None = None
    """Quantise the base model (QLoRA, Dettmers et al. 2023); on a GPU only."""
    gradient_checkpointing: bool = False
    """Compute activations twice instead of keeping them."""
    eval_steps: Positive | None = None
    """Steps between two validations; None for one at the end of each epoch."""
    early_stopping_patience: Positive | None = None
    """Stop when so many validations in a row were no better; None never stops early."""
    play: PlayRecipe | None = None
    """Choose the best checkpoint by the return of episodes that it plays; None for the validation loss."""
    report_to: Literal["wandb", "tensorboard"] | None = None
    """Who else is told of every loss: Weights & Biases, or TensorBoard's files in the job's folder."""
    merge: bool = False
    """Write adapter and base as one model too, which needs no peft to be loaded."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Of the adapter's first weights and of the order of rows."""
    num_processes: Positive | None = None
    """Processes that train side by side, each with batches of its own; None for one for each GPU."""
    num_threads: Positive | None = None
    """Threads on a processor; None for torch's own choice, 1 for models of less than ten million weights."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.packing and self.group_by_length:
            raise ValueError("packing fills its lines already: leave group_by_length out")
        if self.load_in is not None and self.lora is None:
            raise ValueError("a quantised model cannot be trained whole: it needs an adapter (lora)")
        return self

    @property
    def least_batch(self) -> int:
        """Rows that a batch has at least."""
        return 1

    def training_arguments(self) -> dict[str, Any]:
        """What transformers' TrainingArguments take of it by the same names."""
        names = (
            "num_train_epochs",
            "per_device_train_batch_size",
            "per_device_eval_batch_size",
            "gradient_accumulation_steps",
            "learning_rate",
            "lr_scheduler_type",
            "warmup_steps",
            "weight_decay",
            "max_grad_norm",
            "optim",
            "seed",
        )
        given = {name: getattr(self, name) for name in names} | {"max_steps": self.max_steps or -1}
        # the name that transformers 5.23 has for it
        return given | ({"activation_checkpointing": True} if self.gradient_checkpointing else {})

    def n_steps(self, n_lines: int, *, n_replicas: int = 1) -> int:
        """Steps of the optimizer for so many rows, or lines of packed ones.

        Args:
            n_lines: As many as an epoch has.
            n_replicas: Processes that train side by side.
        """
        if self.max_steps is not None:
            return self.max_steps
        n_batches = -(-n_lines // self.per_device_train_batch_size)
        n_batches = -(-n_batches // n_replicas)
        per_epoch = -(-n_batches // self.gradient_accumulation_steps)
        return max(1, round(per_epoch * self.num_train_epochs))


def deciding(recipe: JsonObject) -> JsonObject:
    """What decides the model: one that is there is not trained again because it is wanted merged too."""
    return {name: value for name, value in recipe.items() if name not in WISHES}
