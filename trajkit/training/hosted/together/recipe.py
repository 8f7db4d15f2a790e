"""Settings of training at Together, named as in its SDK and command line."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trajkit.schema import Model

Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

LORA_RATE, FULL_RATE = 2e-4, 1e-5
"""Default learning rates: that of `trajkit sft local`, and Together's own for all weights."""

_PREFERENCES = ("dpo_beta", "dpo_normalize_logratios_by_length", "rpo_alpha", "simpo_gamma")


class TogetherRecipe(Model):
    """All settings that affect the result, except for the rows and the model."""

    n_epochs: Positive = 3
    """Passes over the rows."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Highest learning rate; None for 0.0002 with LoRA and 0.00001 without."""
    batch_size: Positive | Literal["max"] = "max"
    """Rows in a batch; `max` for the model's maximum."""
    gradient_accumulation_steps: Positive | None = None
    """Batches per step; None for the model's own."""
    n_evals: Positive | None = None
    """Number of validations; None for one per epoch if there are validation rows."""
    n_checkpoints: Positive = 1
    """Number of checkpoints to keep."""
    lora: bool = True
    """Train an adapter; false trains all weights."""
    lora_r: Positive | None = None
    """Rank of the adapter; None for the model's own."""
    lora_alpha: Positive | None = None
    """The adapter is scaled by alpha / r; None for twice the rank."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Dropout of the adapter's inputs; None for 0."""
    lora_trainable_modules: str | None = None
    """Layers that get an adapter: names separated by commas; None for all linear layers."""
    lr_scheduler_type: Literal["cosine", "linear"] = "cosine"
    """Schedule of the learning rate."""
    min_lr_ratio: Share = 0.0
    """Final learning rate as a share of the highest."""
    scheduler_num_cycles: Annotated[float, Field(gt=0)] = 0.5
    """Periods of the cosine."""
    warmup_ratio: Share = 0.0
    """Share of the steps that are warm-up."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients are clipped to this norm; 0 for no clipping."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of the optimizer."""
    packing: bool = True
    """Pack several rows into a line. Without it, every row costs as much as the longest."""
    max_seq_length: Positive | None = None
    """Maximum tokens per row; None for the model's own."""
    random_seed: int | None = None
    """Seed of initial weights and order; None for the service's own."""
    early_stopping_enabled: bool = False
    """Stop when validations do not improve."""
    early_stopping_patience: Positive | None = None
    """Validations without improvement before the stop; None for the service's own."""
    early_stopping_min_delta: Annotated[float, Field(ge=0)] | None = None
    """Smallest change that is an improvement; None for the service's own."""
    early_stopping_warmup_evals: Annotated[int, Field(ge=0)] | None = None
    """Validations at the start that do not count; None for the service's own."""
    from_hf_model: str | None = None
    """A model of the Hugging Face Hub to start from, of the same architecture as the base."""
    hf_model_revision: str | None = None
    """Its revision; None for the newest."""
    suffix: str | None = None
    """Part of the tuned model's name; None for the name of the job."""
    dpo_beta: Annotated[float, Field(gt=0)] | None = None
    """Preferences only: strength of the tie to the base model; None for the service's own."""
    dpo_normalize_logratios_by_length: bool | None = None
    """Preferences only: longer completions do not count more."""
    rpo_alpha: Annotated[float, Field(ge=0)] | None = None
    """Preferences only: weight of the better completion's own loss."""
    simpo_gamma: Annotated[float, Field(ge=0)] | None = None
    """Preferences only: margin of SimPO, which needs no reference model."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        of_adapter = ("lora_alpha", "lora_dropout", "lora_trainable_modules")
        asked = next((name for name in of_adapter if getattr(self, name)), None)
        if self.lora_r is None and asked is not None:
            raise ValueError(f"{asked} also needs lora_r")
        if not self.lora and self.lora_r is not None:
            raise ValueError("lora_r is an option of an adapter: leave lora=false out")
        return self

    def of(self, method: str) -> Self:
        """Return the recipe for this method, with its default learning rate.

        Raises:
            ValueError: It sets an option of another method.
        """
        strange = next((name for name in _PREFERENCES if getattr(self, name) and method != "dpo"), None)
        if strange is not None:
            raise ValueError(f"{strange} is an option of preferences (dpo)")
        rate = self.learning_rate or (LORA_RATE if self.lora else FULL_RATE)
        return self.model_copy(update={"learning_rate": rate})

    def request(self, method: str, *, has_validation: bool) -> dict[str, Any]:
        """Return the recipe's part of Together's request."""
        names: tuple[str, ...] = (
            *("n_epochs", "learning_rate", "batch_size", "gradient_accumulation_steps", "n_checkpoints"),
            *("warmup_ratio", "max_grad_norm", "weight_decay", "packing", "max_seq_length", "random_seed"),
            *("from_hf_model", "hf_model_revision"),
        )
        if self.early_stopping_enabled:
            names += ("early_stopping_enabled", "early_stopping_patience")
            names += ("early_stopping_min_delta", "early_stopping_warmup_evals")
        asked = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        asked["n_evals"] = (self.n_evals or self.n_epochs) if has_validation else 0
        asked["lr_scheduler"] = self._schedule()
        if (adapter := self._adapter()) is not None:
            asked["training_type"] = adapter
        asked["training_method"] = self._method(method)
        return asked

    def _schedule(self) -> dict[str, Any]:
        arguments = {"min_lr_ratio": self.min_lr_ratio}
        if self.lr_scheduler_type == "cosine":
            arguments["num_cycles"] = self.scheduler_num_cycles
        return {"lr_scheduler_type": self.lr_scheduler_type, "lr_scheduler_args": arguments}

    def _adapter(self) -> dict[str, Any] | None:
        """Return the adapter's settings; None for an adapter with the model's defaults."""
        if not self.lora:
            return {"type": "Full"}
        if self.lora_r is None:
            return None
        return {
            "type": "Lora",
            "lora_r": self.lora_r,
            "lora_alpha": self.lora_alpha or 2 * self.lora_r,
            "lora_dropout": self.lora_dropout or 0.0,
            "lora_trainable_modules": self.lora_trainable_modules or "all-linear",
        }

    def _method(self, method: str) -> dict[str, Any]:
        if method == "sft":
            return {"method": "sft", "train_on_inputs": False}  # learn only the rows' completions
        is_free = bool(self.simpo_gamma)
        asked = {
            "method": "dpo",
            "dpo_beta": self.dpo_beta,
            "dpo_normalize_logratios_by_length": bool(self.dpo_normalize_logratios_by_length) or is_free,
            "dpo_reference_free": is_free,
            "rpo_alpha": self.rpo_alpha,
            "simpo_gamma": self.simpo_gamma,
        }
        return {name: value for name, value in asked.items() if value is not None}
