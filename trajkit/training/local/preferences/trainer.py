"""Use TRL's preference trainers with rows that are already tokenised."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from trajkit._core.lazy import need

EXTRA = "trl"


@functools.cache
def trainer_class(method: str) -> type[Any]:
    """Create the trainer class for `dpo` or `kto` on first use, because its base takes seconds to import."""
    trl = need("trl", extra=EXTRA)
    base = trl.DPOTrainer if method == "dpo" else trl.KTOTrainer

    class TokensTrainer(base):  # type: ignore[misc,valid-type]
        """Takes rows unchanged: it tokenises, cuts and drops nothing, and sends no telemetry."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            if "ref" in getattr(self.model, "peft_config", {}):
                # TRL keeps a copy of the adapter as the reference. A new adapter changes nothing yet, so the
                # model without it is the same reference, and the copy would be saved with every checkpoint
                self.model.delete_adapter("ref")
            # TRL wants a fixed order, because it pairs prompts with other completions beforehand; here
            # `collator` pairs them within each batch, in any order
            self.args.train_sampling_strategy = "random"

        def _prepare_dataset(self, dataset: Any, *rest: Any, **options: Any) -> Any:
            return dataset

        def _send_telemetry(self) -> None:
            pass

        def create_model_card(self, *rest: Any, **options: Any) -> None:
            pass

    return TokensTrainer


def configuration(method: str, **options: Any) -> Any:
    """Return the arguments of a training for TRL's trainer of this method."""
    trl = need("trl", extra=EXTRA)
    return (trl.DPOConfig if method == "dpo" else trl.KTOConfig)(max_length=None, **options)


def collator(method: str, *, padding: int, compares: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """Return a function that builds a batch of rows.

    Args:
        method: `dpo` or `kto`.
        padding: Id of the padding token; any token is valid.
        compares: For `kto`, also give every prompt the completion of the row before it, from which the loss
            estimates how far the model has moved.
    """
    if method == "dpo":
        module = need("trl.trainer.dpo_trainer", extra=EXTRA)
        pairs: Callable[[Sequence[Any]], dict[str, Any]] = module.DataCollatorForPreference(padding)
        return pairs
    collate = need("trl.trainer.kto_trainer", extra=EXTRA).DataCollatorForUnpairedPreference(padding)

    def with_comparisons(rows: Sequence[Any]) -> dict[str, Any]:
        if compares:
            others = [*rows[-1:], *rows[:-1]]
            rows = [
                {**row, "KL_completion_ids": other["completion_ids"]}
                for row, other in zip(rows, others, strict=True)
            ]
        made: dict[str, Any] = collate(rows)
        return made

    return with_comparisons


def rows_of(path: Path) -> Any:
    """Return tokenised rows as a dataset for TRL's trainers, memory-mapped."""
    return need("datasets", extra=EXTRA).Dataset.from_file(str(path))


def n_tokens_of(rows: Any) -> int:
    """Return the tokens that a model reads of such rows: of a pair, the prompt counts twice."""
    of = {
        name: pc.sum(pc.list_value_length(rows.data[name])).as_py()
        for name in rows.column_names
        if name != "label"
    }
    return int(sum(of.values()) + (of["prompt_ids"] if "rejected_ids" in of else 0))
