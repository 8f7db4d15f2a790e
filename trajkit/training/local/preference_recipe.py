"""How a model learns from preferences on this machine. Names are those of TRL's DPOConfig and KTOConfig."""

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
# the losses that are made of the difference of two rewards, in which a divergence's constant cancels
_OF_DIFFERENCES = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str | int | float) else value


class PreferenceRecipe(LocalRecipe):
    """What DPO and KTO have in common."""

    num_train_epochs: Factor = 1
    """Passes over the rows."""
    learning_rate: Factor = 1e-5
    """At its highest."""
    beta: Factor = 0.1
    """How strongly the model is held to the one that it starts from: the higher, the less it may move."""
    disable_dropout: bool = True
    """No dropout, of the adapter neither, so that both models say the same until one of them has learned."""

    @model_validator(mode="after")
    def _check_preference(self) -> Self:
        for name in _NOT_HERE:
            if getattr(self, name):
                raise ValueError(f"{name} is not for preferences: both sides of a pair are in one batch")
        if self.disable_dropout and self.lora is not None and self.lora.lora_dropout:
            raise ValueError("lora_dropout has no effect here without disable_dropout=false")
        return self

    def training_arguments(self) -> dict[str, Any]:
        """What transformers' TrainingArguments take of it by the same names."""
        # TRL computes activations twice where nobody says that it shall not
        return super().training_arguments() | {"activation_checkpointing": self.gradient_checkpointing}

    def method_arguments(self) -> dict[str, Any]:
        """What TRL's configuration of this method takes beside those of transformers."""
        ours = type(self).model_fields.keys() - LocalRecipe.model_fields.keys()
        return {name: getattr(self, name) for name in sorted(ours)}


class DpoRecipe(PreferenceRecipe):
    """Direct preference optimisation (Rafailov et al. 2023)."""

    loss_type: Annotated[tuple[DpoLoss, ...], BeforeValidator(_as_list), Field(min_length=1)] = ("sigmoid",)
    """The loss; of several, their weighted sum."""
    loss_weights: Annotated[tuple[float, ...], BeforeValidator(_as_list)] | None = None
    """The weight of each; None for 1."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of pairs that are thought to be the wrong way round; for `robust` and `exo_pair`."""
    ld_alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """How much the tokens count by which one answer is longer (Liu et al. 2024, LD-DPO); None for fully."""
    f_divergence_type: Literal["reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"] = "reverse_kl"
    """How the distance to the first model is measured (Wang et al. 2023, f-DPO)."""
    f_alpha_divergence_coef: float = 0.5
    """Of `alpha_divergence`."""
    use_weighting: bool = False
    """Weigh each pair by how probable its answers are to the model (Zhou et al. 2024, WPO)."""
    discopop_tau: Factor = 0.05
    """Of `discopop`."""

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
            raise ValueError("use_weighting makes no sense with aot, which sorts its pairs")
        if self.f_divergence_type != "reverse_kl" and not losses <= _OF_DIFFERENCES:
            raise ValueError(
                f"f_divergence_type {self.f_divergence_type} is for {', '.join(sorted(_OF_DIFFERENCES))}"
            )
        return self

    def method_arguments(self) -> dict[str, Any]:
        """What TRL's DPOConfig takes beside what transformers takes."""
        weights = None if self.loss_weights is None else list(self.loss_weights)
        return super().method_arguments() | {"loss_type": list(self.loss_type), "loss_weights": weights}


class KtoRecipe(PreferenceRecipe):
    """Kahneman-Tversky optimisation (Ethayarajh et al. 2024): answers that are good or bad, not in pairs."""

    loss_type: Literal["kto", "apo_zero_unpaired"] = "kto"
    """The loss."""
    desirable_weight: Factor = 1.0
    """How much a good answer counts."""
    undesirable_weight: Factor = 1.0
    """How much a bad one does; the paper wants the two sums within 4/3 of each other."""
    per_device_train_batch_size: Positive = 8
    """Rows in a batch; `kto` compares with the other answers of a batch, and needs at least 2."""

    @model_validator(mode="after")
    def _check_kto(self) -> Self:
        smallest = min(self.per_device_train_batch_size, self.per_device_eval_batch_size)
        if smallest < self.least_batch:
            raise ValueError("kto compares the answers of a batch: batch sizes are at least 2")
        return self

    @property
    def least_batch(self) -> int:
        """Rows that a batch has at least: `kto` compares each with the others."""
        return 2 if self.loss_type == "kto" else 1


RECIPES: dict[str, type[DpoRecipe] | type[KtoRecipe]] = {"dpo": DpoRecipe, "kto": KtoRecipe}
"""The recipe of each method."""
