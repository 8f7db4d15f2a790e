"""TRL's trainers for preferences, on rows that are tokens already; everything else is their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need

EXTRA = "trl"


@functools.cache
def trainer_class(method: str) -> type[Any]:
    """The class for `dpo` or `kto`; made when it is wanted: what it is made from takes seconds to import."""
    trl = need("trl", extra=EXTRA)
    base = trl.DPOTrainer if method == "dpo" else trl.KTOTrainer

    class TokensTrainer(base):  # type: ignore[misc,valid-type]
        """Takes rows as they are: nothing is written, cut, dropped or told to anybody."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            if "ref" in getattr(self.model, "peft_config", {}):
                # TRL keeps a copy of the adapter to compare with. A new one says nothing yet: the model
                # without it is the same, and the copy would be saved beside every checkpoint
                self.model.delete_adapter("ref")
            # TRL asks for a fixed order, since it pairs a prompt with another's answer beforehand; here
            # `collator` does that within each batch, in whatever order they come
            self.args.train_sampling_strategy = "random"

        def _prepare_dataset(self, dataset: Any, *rest: Any, **options: Any) -> Any:
            return dataset

        def _send_telemetry(self) -> None:
            pass

        def create_model_card(self, *rest: Any, **options: Any) -> None:
            pass

    return TokensTrainer


def configuration(method: str, **options: Any) -> Any:
    """The arguments of a training, as TRL's trainer of this method takes them."""
    trl = need("trl", extra=EXTRA)
    return (trl.DPOConfig if method == "dpo" else trl.KTOConfig)(max_length=None, **options)


def collator(method: str, *, padding: int, compares: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """What makes a batch of rows.

    Args:
        method: `dpo` or `kto`.
        padding: A token; any will do.
        compares: Of `kto`, give every prompt the answer of the row before it too, by which the loss measures
            how far the model has moved.
    """
    if method == "dpo":
        module = need("trl.trainer.dpo_trainer", extra=EXTRA)
        pairs: Callable[[Sequence[Any]], dict[str, Any]] = module.DataCollatorForPreference(padding)
        return pairs
    collate = need("trl.trainer.kto_trainer", extra=EXTRA).DataCollatorForUnpairedPreference(padding)

    def judged(rows: Sequence[Any]) -> dict[str, Any]:
        if compares:
            others = [*rows[-1:], *rows[:-1]]
            rows = [
                {**row, "KL_completion_ids": other["completion_ids"]}
                for row, other in zip(rows, others, strict=True)
            ]
        made: dict[str, Any] = collate(rows)
        return made

    return judged


def rows_of(path: Path) -> Any:
    """Rows of tokens as the dataset that TRL's trainers take, mapped from their file."""
    return need("datasets", extra=EXTRA).Dataset.from_file(str(path))
