"""The training data of one iteration: rows with log-probabilities and advantages, in minibatches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from trajkit._core.lazy import need
from trajkit.training.rl.experience import Experience
from trajkit.training.rl.loss import StepRow, collate, correction, scored
from trajkit.training.rl.recipe import RlRecipe


class Networks(NamedTuple):
    """The networks that score the rows."""

    model: Any
    """The model that is trained."""
    first: Sequence[Any]
    """Initial values of its trained weights, in the order of the model."""
    value_head: Any
    """Maps a hidden state to the expected return; None without a value head."""
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """Context with the precision of the training."""


class Measured(NamedTuple):
    """Measures of the model on the rows, before it learns from them."""

    kl: float
    """Mean KL divergence from the initial model per token, in nats (Schulman's k3 estimate)."""
    entropy: float
    """Mean entropy per token, in nats."""
    drift: float
    """Mean absolute difference between a token's log-probabilities in sampling and in training."""
    importance_share: float
    """Share of the tokens on which the cap of the correction had an effect."""
    n_learned: int
    """Number of learned rows; rows without anything to compare with are left out."""
    n_silent: int
    """Groups with a single attempt, or whose attempts all have the same score."""
    n_stale: int
    """Rows left out because the model is too far from the policy that played them."""


class Round:
    """The rows of an iteration, ready to be learned.

    Args:
        experience: The steps that were played.
        networks: The models, none of them in training mode.
        recipe: Settings of the training.
        padding: Id of the padding token; any token is valid.
        max_staleness: Leave out steps whose answer has become more than this many times more or less
            probable since it was sampled; None leaves none out.
    """

    def __init__(
        self,
        experience: Experience,
        networks: Networks,
        recipe: RlRecipe,
        *,
        padding: int,
        max_staleness: float | None = None,
    ) -> None:
        self._experience, self._recipe, self._padding = experience, recipe, padding
        self._device = networks.model.device
        self._order = _grown_together(experience.rows)
        n = len(experience.rows)
        self._columns: dict[str, list[Any]] = {name: [None] * n for name in ("old", "reference", "weight")}
        self._values = None if networks.value_head is None else np.zeros(n)
        self._sums, self._gaps = np.zeros(4), np.zeros(n)
        """Log-ratio of each answer's probability now to its probability when it was sampled."""
        with need("torch", extra="local").no_grad():
            for places in self._cut(range(n)):
                self._score(places, networks)
        self._learn(max_staleness)

    def _score(self, places: Sequence[int], networks: Networks) -> None:
        """Run the models on some rows, and keep the results."""
        temperature = self._recipe.play.temperature
        batch = self._batch(places)
        with networks.context():
            found = scored(networks.model, batch, temperature=temperature, value_head=networks.value_head)
        with networks.context(), _as_at_first(networks):
            reference = scored(networks.model, batch, temperature=temperature).logps
        mask = batch["mask"]
        weight, is_capped = correction(found.logps, batch["sampled"], mask, self._recipe)
        apart = reference - found.logps
        kl = apart.exp() - apart - 1
        gap = (found.logps - batch["sampled"]) * mask
        self._gaps[list(places)] = gap.sum(-1).cpu().numpy()
        drift = gap.abs()
        self._sums += [float((each * mask).sum()) for each in (kl, found.entropy, drift, is_capped)]
        for name, column in (("old", found.logps), ("reference", reference), ("weight", weight)):
            for place, line in zip(places, column.float().cpu().numpy(), strict=True):
                self._columns[name][place] = line[: len(self._experience.rows[place].completion)]
        if self._values is not None:
            self._values[list(places)] = found.values.cpu().numpy()

    def _learn(self, max_staleness: float | None) -> None:
        """Choose the learned rows, and compute the advantages."""
        recipe, found = self._recipe, self._experience.advantages(self._recipe, self._values)
        self._advantage = found.values
        if self._values is not None:
            self._target = found.values + self._values
            if len(found.values):
                self._advantage = (found.values - found.values.mean()) / (found.values.std() + 1e-8)
        # the KL and entropy terms apply to rows without an advantage, too
        is_learned = (
            np.ones(len(found.values), dtype=bool) if recipe.beta or recipe.entropy_coef else ~found.left_out
        )
        is_learned &= np.array([bool((weight > 0).any()) for weight in self._columns["weight"]], dtype=bool)
        n_stale = 0
        if max_staleness is not None and recipe.algorithm != "awr":
            is_stale = np.abs(self._gaps) > math.log(max_staleness)
            is_learned, n_stale = is_learned & ~is_stale, int(is_stale.sum())
        self._learned = np.flatnonzero(is_learned)
        n_tokens = max(1, sum(len(row.completion) for row in self._experience.rows))
        kl, entropy, drift, share = (self._sums / n_tokens).tolist()
        n_silent = found.n_equal + found.n_single
        self.measured = Measured(kl, entropy, drift, share, len(self._learned), n_silent, n_stale)

    def minibatch(self, key: Sequence[int], part: int) -> Minibatch:
        """Return the rows of one optimizer step.

        Args:
            key: Numbers that determine the order of the rows: the same in all parts of a pass.
            part: Part of the pass, from 0.
        """
        order = np.random.default_rng(list(key)).permutation(self._learned)
        places = np.array_split(order, self._recipe.minibatches)[part].tolist()
        n_tokens = sum(int((self._columns["weight"][place] > 0).sum()) for place in places)
        return Minibatch(self, places, n_tokens)

    def batches(self, places: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield batches of the rows in these places, with all inputs of the loss."""
        for some in self._cut(places):
            yield self._batch(some) | {
                **{name: self._padded(column, some) for name, column in self._columns.items()},
                "advantage": self._tensor(self._advantage[some]),
                **({} if self._values is None else {"target": self._tensor(self._target[some])}),
            }

    def _cut(self, places: Sequence[int]) -> Iterator[list[int]]:
        """Yield batches of places: rows of one conversation together, conversations by length."""
        size, ordered = self._recipe.per_device_train_batch_size, sorted(places, key=self._order.__getitem__)
        yield from (ordered[start : start + size] for start in range(0, len(ordered), size))

    def _batch(self, places: Sequence[int]) -> dict[str, Any]:
        return collate(
            [self._experience.rows[place] for place in places], padding=self._padding, device=self._device
        )

    def _padded(self, column: Sequence[Any], places: Sequence[int]) -> Any:
        width = max(len(column[place]) for place in places)
        lines = np.zeros((len(places), width), dtype=np.float32)
        for line, place in zip(lines, places, strict=True):
            line[: len(column[place])] = column[place]
        return self._tensor(lines)

    def _tensor(self, values: Any) -> Any:
        torch = need("torch", extra="local")
        return torch.tensor(values, dtype=torch.float32, device=self._device)


class Minibatch(NamedTuple):
    """The rows of one optimizer step."""

    of: Round
    places: list[int]
    n_tokens: int
    """Tokens that are not left out."""

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in batches."""
        return self.of.batches(self.places)


def _grown_together(rows: Sequence[StepRow]) -> list[tuple[int, int]]:
    """Return sort keys of rows: the length of the row's conversation, then its place.

    A row continues the conversation of the row before it if its prompt begins with that prompt and answer.
    """
    order: list[tuple[int, int]] = []
    first = 0
    for place, row in enumerate(rows):
        before = rows[place - 1]
        said = (*before.prompt, *before.completion)
        if place and tuple(row.prompt[: len(said)]) != said:
            first = place
        n_tokens = len(row.prompt) + len(row.completion)
        order[first:] = [(n_tokens, at) for at in range(first, place + 1)]
    return order


@contextlib.contextmanager
def _as_at_first(networks: Networks) -> Iterator[None]:
    """Give the model its initial weights in the block."""
    trained = [each for each in networks.model.parameters() if each.requires_grad]

    def exchange() -> None:
        for now, first in zip(trained, networks.first, strict=True):
            now.data, first.data = first.data, now.data

    exchange()
    try:
        yield
    finally:
        exchange()
