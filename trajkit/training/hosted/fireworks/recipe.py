"""Settings of training at Fireworks, named as in its SDK."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from trajkit.schema import Model

Positive = Annotated[int, Field(gt=0)]
_PREFERENCES = ("beta", "loss_method")


class FireworksRecipe(Model):
    """All settings that affect the result, except for the rows and the model."""

    epochs: Positive = 3
    """Passes over the rows."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Highest learning rate; None for the service's own."""
    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of the adapter; None for the service's own."""
    max_context_length: Positive | None = None
    """Maximum tokens per row; None for the service's own."""
    batch_size_samples: Positive | None = None
    """Rows in a batch; None for the service's own."""
    learning_rate_warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """Steps of warm-up; None for the service's own."""
    optimizer_weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay; None for the service's own."""
    eval_auto_carveout: bool = False
    """Let the service split off validation rows at random, not by world."""
    warm_start_from: str | None = None
    """An adapter of your account to start from, instead of the base model."""
    is_turbo: bool = False
    """Train faster at a higher price."""
    output_model: str | None = None
    """Name of the tuned model; None for that of the job."""
    beta: Annotated[float, Field(gt=0, lt=0.5)] | None = None
    """Preferences only: strength of the tie to the base model; None for the service's own."""
    loss_method: Literal["DPO", "ORPO"] | None = None
    """Preferences only: the loss; None for DPO."""

    def of(self, method: str) -> Self:
        """Return the recipe for this method.

        Raises:
            ValueError: It sets an option of another method.
        """
        strange = next((name for name in _PREFERENCES if getattr(self, name) and method != "dpo"), None)
        if strange is not None:
            raise ValueError(f"{strange} is an option of preferences (dpo)")
        if method == "dpo" and (self.eval_auto_carveout or self.is_turbo):
            raise ValueError("eval_auto_carveout and is_turbo are not options of preferences (dpo)")
        return self

    def request(self, method: str, *, base: str, output_model: str) -> dict[str, Any]:
        """Return the recipe's part of Fireworks' request."""
        names = (
            *("epochs", "learning_rate", "lora_rank", "max_context_length", "batch_size_samples"),
            *("learning_rate_warmup_steps", "optimizer_weight_decay"),
        )
        asked = {to_camel(name): getattr(self, name) for name in names if getattr(self, name) is not None}
        start = (
            {"baseModel": base} if self.warm_start_from is None else {"warmStartFrom": self.warm_start_from}
        )
        asked |= start | {"outputModel": output_model}
        if method == "dpo":
            loss: dict[str, Any] = {"method": self.loss_method or "DPO"}
            if self.beta is not None:
                loss["dpo"] = {"beta": self.beta}
            return {"trainingConfig": asked, "lossConfig": loss}
        return asked | {"evalAutoCarveout": self.eval_auto_carveout, "isTurbo": self.is_turbo}
