"""Extend transformers' Trainer by a weight for every token."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from trajkit._core.lazy import need
from trajkit.rollouts.records.record import RETURN_METRIC
from trajkit.rollouts.records.summary import Mean
from trajkit.training.local.loss import weighted_loss
from trajkit.training.local.tokens.packing import buckets


@functools.cache
def trainer_class() -> type[Any]:
    """Create the trainer class on first use, because its base takes seconds to import."""
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    output = need("transformers.trainer_utils", extra="local").EvalLoopOutput

    class Buckets(torch.utils.data.Sampler):  # type: ignore[misc,name-defined]
        """Rows of similar length together, in an order that depends on seed and epoch."""

        def __init__(self, lengths: Any, n_rows: int, seed: int) -> None:
            self._lengths, self._n_rows, self._seed = lengths, n_rows, seed
            self._epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self._epoch = epoch

        def __len__(self) -> int:
            return len(self._lengths)

        def __iter__(self) -> Iterator[int]:
            return iter(buckets(self._lengths, self._n_rows, [self._seed, self._epoch]))

    class WeightedTrainer(transformers.Trainer):  # type: ignore[misc,name-defined]
        """Counts weights instead of labels, so that gradient accumulation divides by the right number."""

        def __init__(
            self,
            *,
            buckets_seed: int | None = None,
            player: Callable[[Any], Mean] | None = None,
            **options: Any,
        ) -> None:
            super().__init__(**options)
            self._player = player
            self._buckets_seed = buckets_seed
            # the loss is already divided by the weights of all accumulated batches
            self.model_accepts_loss_kwargs = True

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if self._buckets_seed is None:
                return super()._get_train_sampler(train_dataset)
            # transformers' own order depends on torch's state, so a resumed training would get another order
            n_rows = self._train_batch_size * self.args.gradient_accumulation_steps
            return Buckets(self.train_dataset.lengths, n_rows, self._buckets_seed)

        def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
            weight = sum(batch["weights"][:, 1:].sum() for batch in batch_samples).to(device)
            return self.accelerator.gather(weight).sum()

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            loss = weighted_loss(model, inputs)
            # with several processes, each has a part of the sum, and gradients are averaged
            n_processes = self.accelerator.num_processes
            divisor = loss.weight if num_items_in_batch is None else num_items_in_batch / n_processes
            value = loss.total / divisor.clamp(min=torch.finfo(torch.float32).tiny)
            return (value, None) if return_outputs else value

        def evaluation_loop(
            self,
            dataloader: Any,
            description: str,
            prediction_loss_only: bool | None = None,
            ignore_keys: list[str] | None = None,
            metric_key_prefix: str = "eval",
        ) -> Any:
            """Compute the loss over all tokens together, instead of the mean of the batches' means."""
            self.model.eval()
            sums = torch.zeros(2, dtype=torch.float64, device=self.args.device)
            for batch in dataloader:
                with torch.no_grad():
                    found = weighted_loss(self.model, self._prepare_inputs(batch))
                sums += torch.stack([found.total, found.weight]).double()
                self.callback_handler.on_prediction_step(self.args, self.state, self.control)
            total, weight = self.accelerator.reduce(sums, "sum").tolist()
            metrics = {f"{metric_key_prefix}_loss": total / weight if weight else float("nan")}
            if self._player is not None:
                played = self._player(self.accelerator.unwrap_model(self.model))
                metrics[f"{metric_key_prefix}_{RETURN_METRIC}"] = played.mean
                metrics[f"{metric_key_prefix}_{RETURN_METRIC}_error"] = played.standard_error or 0.0
            n_rows = len(dataloader.dataset)
            return output(predictions=None, label_ids=None, metrics=metrics, num_samples=n_rows)

    return WeightedTrainer
