"""Settings of training on this machine, named as in peft and in transformers' TrainingArguments."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from trajkit.schema import Model
from trajkit.schema.base import JsonObject

Positive = Annotated[int, Field(gt=0)]


def _as_tuple(value: Any) -> Any:
    """Convert a list, which JSON has instead of a tuple."""
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]

WISHES = ("auto_batch", "merge", "report_to", "rdzv_endpoint")
"""Fields that do not change the model, so that a job with other values counts as the same."""


class LoraRecipe(Model):
    """Low-rank adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models")."""

    r: Positive = 16
    """Rank."""
    lora_alpha: Annotated[float, Field(gt=0)] = 32
    """The adapter is scaled by alpha / r, or with `use_rslora` by alpha / sqrt(r)."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout of the adapter's inputs."""
    target_modules: Names | Literal["all-linear"] = "all-linear"
    """Layers that get an adapter: names or ends of names, or all linear layers except for the output."""
    use_rslora: bool = False
    """Rank-stabilised scaling (Kalajdzievski 2023)."""
    use_dora: bool = False
    """Weight-decomposed adapters (Liu et al. 2024)."""
    adapter: str = ""
    """Folder of an adapter to continue, whose settings these are; empty for new weights."""


class PlayRecipe(Model):
    """Episodes that a model plays at each validation, through the prompts of a gateway's function."""

    seeds: Annotated[str, Field(min_length=1)]
    """Half-open range, such as `200:220`, reserved for evaluation; use other seeds for a report."""
    env: str = ""
    """The environment; empty for the store's."""
    tasks: Names = ()
    """Tasks, each on every seed; empty for the store's."""
    config: str = ""
    """The gateway's `tensorzero.toml`, whose templates render the prompts."""
    function: str = ""
    """The function; empty for the store's."""
    variant: str = ""
    """The variant with the templates; empty for the store's if it has only one."""
    history: Annotated[int, Field(ge=0)] = 8
    """Number of latest steps in the prompt, besides the observation."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature; 0 takes the most likely tokens."""
    max_new_tokens: Positive = 128
    """Maximum tokens per answer."""


class LocalRecipe(Model):
    """All settings that affect the result, except for the data and the model."""

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
    """Batches per step."""
    auto_batch: bool = False
    """When memory runs out, halve the batch, double the accumulation, and resume from the last checkpoint."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    """Highest learning rate."""
    lr_scheduler_type: Literal["cosine", "linear", "constant", "constant_with_warmup"] = "cosine"
    """Schedule of the learning rate."""
    warmup_steps: Annotated[float, Field(ge=0)] = 0.03
    """Steps of warm-up; below 1, a share of all steps."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of AdamW."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients are clipped to this norm; 0 for no clipping."""
    optim: str = "adamw_torch"
    """The optimizer, such as `paged_adamw_8bit` on a GPU."""
    max_length: Positive = 2048
    """Maximum tokens per row. A longer row is an error."""
    packing: bool = False
    """Pack several rows into a line. They do not attend to each other, and common beginnings of rows are
    computed once."""
    group_by_length: bool = False
    """Put rows of similar length into a batch, which reduces padding. Not with `packing`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 where the GPU supports it, fp16 on older ones, fp32 on a CPU."""
    load_in: Literal["4bit", "8bit"] | None = None
    """Quantise the base model (QLoRA, Dettmers et al. 2023); on a GPU only."""
    use_liger_kernel: bool = False
    """Fused kernels of the package liger-kernel for norms, rotations and activations; on a GPU only."""
    torch_compile: bool = False
    """Compile each layer of the model: a slower first step, then fewer and larger kernels."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of storing them."""
    eval_steps: Positive | None = None
    """Steps between two validations; None for one at the end of each epoch."""
    early_stopping_patience: Positive | None = None
    """Stop after this many validations without improvement; None never stops early."""
    play: PlayRecipe | None = None
    """Select the best checkpoint by the return of episodes that it plays; None for the validation loss."""
    report_to: Literal["wandb", "tensorboard"] | None = None
    """Also report losses to Weights & Biases, or to TensorBoard files in the job's folder."""
    merge: bool = False
    """Also write adapter and base as one model, which loads without peft."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the adapter's initial weights and of the order of rows."""
    num_processes: Positive | None = None
    """Processes that train in parallel on all machines, each with its own batches; None for one per GPU."""
    num_machines: Positive = 1
    """Machines that train in parallel, each with as many processes; all see the folder of the jobs."""
    rdzv_endpoint: str | None = None
    """Address `HOST:PORT` of this machine for the others; None for its name and port 29400."""
    fsdp: bool = False
    """Shard weights, gradients and optimizer states across the processes (FSDP2): each GPU holds a part."""
    num_threads: Positive | None = None
    """Threads on a CPU; None for torch's own choice, and 1 for models below ten million weights."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.packing and self.group_by_length:
            raise ValueError("packing already fills its lines: leave group_by_length out")
        if self.load_in is not None and self.lora is None:
            raise ValueError("a quantised model cannot be trained as a whole: it needs an adapter (lora)")
        if (self.num_processes or 0) % self.num_machines:
            raise ValueError("num_processes must be a multiple of num_machines")
        if self.torch_compile and self.use_liger_kernel:
            raise ValueError("torch_compile cannot compile liger's kernels: leave use_liger_kernel out")
        if self.fsdp and (unfit := _unfit_for_fsdp(self)):
            raise ValueError(f"fsdp does not work with {unfit}")
        return self

    @property
    def least_batch(self) -> int:
        """Minimum rows per batch."""
        return 1

    def training_arguments(self) -> dict[str, Any]:
        """Return the arguments that have the same names in transformers' TrainingArguments."""
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
            "use_liger_kernel",
        )
        given = {name: getattr(self, name) for name in names} | {"max_steps": self.max_steps or -1}
        if self.fsdp:
            # the first process reads the weights and sends each of the others its part
            given |= {"fsdp": True, "fsdp_config": {"cpu_ram_efficient_loading": True}}
        # transformers 5.23's name of gradient checkpointing
        return given | ({"activation_checkpointing": True} if self.gradient_checkpointing else {})

    def n_steps(self, n_lines: int, *, n_replicas: int = 1) -> int:
        """Return the number of optimizer steps for a number of rows, or of packed lines.

        Args:
            n_lines: Rows or lines of an epoch.
            n_replicas: Processes that train in parallel.
        """
        if self.max_steps is not None:
            return self.max_steps
        n_batches = -(-n_lines // self.per_device_train_batch_size)
        n_batches = -(-n_batches // n_replicas)
        per_epoch = -(-n_batches // self.gradient_accumulation_steps)
        return max(1, round(per_epoch * self.num_train_epochs))


def _unfit_for_fsdp(recipe: LocalRecipe) -> str | None:
    """Return a setting whose tensors cannot be sharded; None if there is none."""
    if recipe.load_in is not None:
        return f"load_in={recipe.load_in}"
    if recipe.torch_compile:
        return "torch_compile"
    if recipe.lora is not None and recipe.lora.use_dora:
        return "lora.use_dora"
    if recipe.play is not None:
        return "play: no process has the whole model"
    if recipe.precision == "fp16":
        return "precision=fp16"
    return f"optim={recipe.optim}" if not recipe.optim.startswith(("adamw_torch", "sgd")) else None


def deciding(recipe: JsonObject) -> JsonObject:
    """Return the settings that affect the model, without those that only affect files and reports."""
    return {name: value for name, value in recipe.items() if name not in WISHES}
