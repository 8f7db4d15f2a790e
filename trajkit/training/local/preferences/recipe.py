"""Settings of preference training on this machine, named as in TRL's DPOConfig and KTOConfig."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from trajkit.training.local.recipe import LocalRecipe, Positive

DpoLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
]
Factor = Annotated[float, Field(gt=0)]

_NOT_HERE = ("packing", "group_by_length", "play")
# losses of the difference of two rewards, in which a divergence's constant cancels
_OF_DIFFERENCES = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str | int | float) else value


class PreferenceRecipe(LocalRecipe):
    """The settings that DPO and KTO share."""

    num_train_epochs: Factor = 1
    """Passes over the rows."""
    learning_rate: Factor = 1e-5
    """Highest learning rate."""
    beta: Factor = 0.1
    """Strength of the tie to the base model: a higher value allows less change."""
    disable_dropout: bool = True
    """Disable dropout, also the adapter's, so that both models are equal until one has learned."""

    @model_validator(mode="after")
    def _check_preference(self) -> Self:
        for name in _NOT_HERE:
            if getattr(self, name):
                raise ValueError(f"{name} is not for preferences: both sides of a pair are in one batch")
        if self.disable_dropout and self.lora is not None and self.lora.lora_dropout:
            raise ValueError("lora_dropout has no effect here without disable_dropout=false")
        return self

    def training_arguments(self) -> dict[str, Any]:
        """Return the arguments that have the same names in transformers' TrainingArguments."""
        # TRL's default is gradient checkpointing
        return super().training_arguments() | {"activation_checkpointing": self.gradient_checkpointing}

    def method_arguments(self) -> dict[str, Any]:
        """Return the arguments of TRL's configuration of this method besides those of transformers."""
        ours = type(self).model_fields.keys() - LocalRecipe.model_fields.keys()
        return {name: getattr(self, name) for name in sorted(ours)}


class DpoRecipe(PreferenceRecipe):
    """Direct preference optimisation (Rafailov et al. 2023)."""

    loss_type: Annotated[tuple[DpoLoss, ...], BeforeValidator(_as_list), Field(min_length=1)] = ("sigmoid",)
    """The loss; several are added with their weights."""
    loss_weights: Annotated[tuple[float, ...], BeforeValidator(_as_list)] | None = None
    """Weight of each loss; None for 1."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Assumed share of pairs with swapped labels; for `robust` and `exo_pair`."""
    ld_alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight of the tokens beyond the shorter completion (Liu et al. 2024, LD-DPO); None for full weight."""
    f_divergence_type: Literal["reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"] = "reverse_kl"
    """Divergence from the base model (Wang et al. 2023, f-DPO)."""
    f_alpha_divergence_coef: float = 0.5
    """Coefficient of `alpha_divergence`."""
    use_weighting: bool = False
    """Weight each pair by the model's probability of its completions (Zhou et al. 2024, WPO)."""
    discopop_tau: Factor = 0.05
    """Temperature of `discopop`."""

    @model_validator(mode="after")
    def _check_dpo(self) -> Self:
        losses = set(self.loss_type)
        if self.loss_weights is not None and len(self.loss_weights) != len(self.loss_type):
            raise ValueError(
                f"loss_weights has {len(self.loss_weights)} values for {len(self.loss_type)} of loss_type"
            )
        if self.label_smoothing and not losses & {"robust", "exo_pair"}:
            raise ValueError("label_smoothing is for loss_type robust and exo_pair")
        if "exo_pair" in losses and not self.label_smoothing:
            raise ValueError("exo_pair needs a label_smoothing above 0, such as 0.001")
        if self.use_weighting and losses & {"aot", "aot_unpaired"}:
            raise ValueError("use_weighting does not work with aot, which sorts its pairs")
        if self.f_divergence_type != "reverse_kl" and not losses <= _OF_DIFFERENCES:
            raise ValueError(
                f"f_divergence_type {self.f_divergence_type} is for {', '.join(sorted(_OF_DIFFERENCES))}"
            )
        return self

    def method_arguments(self) -> dict[str, Any]:
        """Return the arguments of TRL's DPOConfig besides those of transformers."""
        weights = None if self.loss_weights is None else list(self.loss_weights)
        return super().method_arguments() | {"loss_type": list(self.loss_type), "loss_weights": weights}


class KtoRecipe(PreferenceRecipe):
    """Kahneman-Tversky optimisation (Ethayarajh et al. 2024), from good and bad completions without pairs."""

    loss_type: Literal["kto", "apo_zero_unpaired"] = "kto"
    """The loss."""
    desirable_weight: Factor = 1.0
    """Weight of good completions."""
    undesirable_weight: Factor = 1.0
    """Weight of bad completions; the paper wants the two weighted sums within a factor of 4/3."""
    per_device_train_batch_size: Positive = 8
    """Rows in a batch, at least 2 for `kto`, which compares the completions of a batch."""

    @model_validator(mode="after")
    def _check_kto(self) -> Self:
        smallest = min(self.per_device_train_batch_size, self.per_device_eval_batch_size)
        if smallest < self.least_batch:
            raise ValueError("kto compares the completions of a batch: batch sizes must be at least 2")
        return self

    @property
    def least_batch(self) -> int:
        """Minimum rows per batch: `kto` compares each row with another."""
        return 2 if self.loss_type == "kto" else 1


RECIPES: dict[str, type[DpoRecipe] | type[KtoRecipe]] = {"dpo": DpoRecipe, "kto": KtoRecipe}
"""The recipe of each method."""
