"""Learn from the episodes of a store, if the model is close enough to the policy that played them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajkit._core.lazy import need
from trajkit.errors import DataError
from trajkit.formats.chat.request import request_of
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.generation.row import allowed_tokens
from trajkit.models.serving.chat_request import ChatRequest
from trajkit.rollouts.local.player import as_tool
from trajkit.rollouts.records.record import RETURN_METRIC
from trajkit.schema import Episode, Outcome, Purpose, Transition
from trajkit.store.dataset import Dataset
from trajkit.training.job import JobData
from trajkit.training.local.base_model import load_base
from trajkit.training.rl.experience import Lived, Trace
from trajkit.training.rl.loss import StepRow, collate, scored
from trajkit.training.rl.recipe import COMPARING, RlRecipe

_MOST_SAMPLED = 1000
"""Maximum number of steps on which the distance is measured before a training."""
_LEAST_EFFECTIVE, _MOST_STALE = 0.05, 0.9
"""A training is refused below this effective sample size, a share of the steps, or above this share of
stale steps."""
_HELD_TO = ("response_format", "tool_choice", "parallel_tool_calls")
"""Options of a request that, with its tools, define the grammar of the answer."""
_NO_LOGPROBS = "their steps have no log-probabilities"
_OTHERWISE = "`trajkit weight --scheme advantage`, then `trajkit sft local`, learns from a store without them"


class Distance(NamedTuple):
    """The distance of a model from the policy that played some steps."""

    n_steps: int
    """Number of steps measured."""
    effective: float
    """Effective sample size as a share of them: (sum w)^2 / sum w^2 / n, where w is the ratio of the
    probabilities that the model and the behaviour policy give to an answer (Kong 1992)."""
    kl: float
    """Mean KL divergence of the behaviour policy from the model per token, in nats."""
    stale: float
    """Share of the steps whose ratio is outside 1 / max_staleness to max_staleness."""

    def check(self) -> None:
        """Refuse steps that are too far from the model.

        Raises:
            DataError: Too few steps are close enough.
        """
        if self.effective < _LEAST_EFFECTIVE or self.stale > _MOST_STALE:
            raise DataError(
                f"the episodes are too far from the model: effective sample size {self.effective:.1%},"
                f" {self.stale:.1%} of the steps are too stale, KL divergence {self.kl:.3g} nats per token",
                hint="start from the model that played them, or play new ones with `trajkit rollout`",
            )


class _Kept(NamedTuple):
    """An episode of a store to learn from."""

    trace: Trace
    asks: tuple[Ask | None, ...]
    """The request with the grammar of each row's answer; None without one, or if it is not stored."""


class Logged:
    """The episodes of a store that a model can learn from, and counts of the others.

    Args:
        data: The store.
        tokenizer: Hash of the model's tokenizer.
        recipe: Settings of the training.

    Raises:
        DataError: The ids are another tokenizer's, or no episode can be learned; the hint has another way to
            use the store.
    """

    def __init__(self, data: Dataset, tokenizer: str, recipe: RlRecipe) -> None:
        self._recipe = recipe
        self.left: Counter[str] = Counter()
        """Number of episodes that are not learned, by reason."""
        self._kept: list[_Kept] = []
        for episode in data:
            reason = _reason(episode, tokenizer, data.store.path, recipe)
            if reason is None:
                self._kept.append(_Kept(_trace(episode), tuple(map(_ask, episode.steps))))
            else:
                self.left[reason] += 1
        if not self._kept:
            said = ", ".join(f"{n:,}: {reason}" for reason, n in self.left.items()) or "it has no episodes"
            unsaid = "--algorithm awr needs no log-probabilities; " if _NO_LOGPROBS in self.left else ""
            raise DataError(f"{data.store.path} cannot be learned: {said}", hint=unsaid + _OTHERWISE)
        groups: dict[tuple[Any, ...], list[_Kept]] = {}
        for kept in self._kept:
            groups.setdefault(kept.trace.group, []).append(kept)
        self._groups = list(groups.values())
        if recipe.algorithm in COMPARING and max(map(len, self._groups)) == 1:
            raise DataError(
                f"{data.store.path} has one attempt at each seed, and {recipe.algorithm} compares attempts",
                hint="--algorithm reinforce or ppo",
            )
        self._data = data

    @property
    def traces(self) -> list[Trace]:
        """The learned episodes, without the tokens that their grammars allowed."""
        return [kept.trace for kept in self._kept]

    def lived(self, iteration: int, voice: Voice) -> Lived:
        """Return the groups of an iteration; after the last group, the first follows again.

        Args:
            iteration: From 0.
            voice: The model that learns.
        """
        n = self._recipe.seeds_per_iteration
        order = np.random.default_rng(self._recipe.seed).permutation(len(self._groups))
        places = {int(order[at % len(order)]) for at in range(iteration * n, iteration * n + n)}
        traces = []
        for kept in (kept for place in sorted(places) for kept in self._groups[place]):
            rows = zip(kept.trace.rows, kept.asks, strict=True)
            allowed = tuple(_with_allowed(row, ask, voice) for row, ask in rows)
            traces.append(kept.trace._replace(rows=allowed))
        return Lived(traces, {}, 0)

    @property
    def facts(self) -> JobData:
        """The facts about the data for the job's record."""
        rows = [row for trace in self.traces for row in trace.rows]
        sizes = [len(row.prompt) + len(row.completion) for row in rows]
        manifest = self._data.store.manifest
        return JobData(
            store=self._data.store.path,
            digest=manifest.digest,
            n_episodes=len(self.traces),
            n_steps=manifest.counts.n_steps,
            n_learned=len(rows),
            n_rows=len(rows),
            n_tokens=sum(sizes),
            n_learned_tokens=sum(len(row.completion) for row in rows),
            longest=max(sizes),
            left={f"episodes: {reason}": number for reason, number in self.left.items()},
        )

    def distance(self, base: str, tokenizer: ChatTemplate) -> Distance:
        """Measure the distance of a model from the policy that played, on some of the steps.

        Args:
            base: Folder or id of the model.
            tokenizer: Its tokenizer.
        """
        torch = need("torch", extra="local")
        model = load_base(base, self._recipe).eval()
        asked = [each for kept in self._kept for each in zip(kept.trace.rows, kept.asks, strict=True)]
        if len(asked) > _MOST_SAMPLED:
            chosen = np.random.default_rng(self._recipe.seed).choice(len(asked), _MOST_SAMPLED, replace=False)
            asked = [asked[place] for place in sorted(chosen)]
        voice = LocalModel.of(model, tokenizer).voice(None)
        rows = [_with_allowed(row, ask, voice) for row, ask in asked]
        size, gaps, n_tokens = self._recipe.per_device_train_batch_size, [], 0
        with torch.no_grad():
            for start in range(0, len(rows), size):
                batch = collate(rows[start : start + size], padding=0, device=model.device)
                found = scored(model, batch, temperature=self._recipe.play.temperature)
                gaps += ((found.logps - batch["sampled"]) * batch["mask"]).sum(-1).tolist()
                n_tokens += int(batch["mask"].sum())
        return distance_of(gaps, n_tokens, self._recipe.max_staleness)


def distance_of(gaps: Sequence[float], n_tokens: int, most: float) -> Distance:
    """Compute the distance from the differences of the log-probabilities of whole answers.

    Args:
        gaps: The model's log-probability minus the behaviour policy's, for each step.
        n_tokens: Tokens of all answers.
        most: Maximum ratio, or its inverse, of a step that is not too stale.
    """
    gap = np.array(gaps)
    ratio = np.exp(gap - gap.max())  # a common factor cancels
    effective = float(ratio.sum() ** 2 / (ratio**2).sum() / len(gap))
    stale = float((np.abs(gap) > math.log(most)).mean())
    return Distance(len(gap), effective, float(-gap.sum() / max(1, n_tokens)), stale)


def _reason(episode: Episode, tokenizer: str, path: Path, recipe: RlRecipe) -> str | None:
    """Return why an episode cannot be learned; None if it can.

    Raises:
        DataError: Its ids are another tokenizer's.
    """
    if episode.purpose == Purpose.EVAL:
        return "they were played for evaluation"
    if episode.outcome == Outcome.ERROR or not episode.steps:
        return "they did not end"
    if _score(episode) is None:
        return "they have no return"
    if recipe.algorithm in ("gigpo", "ppo") and any(
        acts and step.reward is None for step, acts in zip(episode.steps, _acting(episode), strict=True)
    ):
        return f"a step has no reward, which {recipe.algorithm} needs"
    for step in episode.steps:
        if not step.prompt_token_ids or not step.completion_token_ids:
            return "their steps have no token ids"
        if recipe.algorithm != "awr" and step.logprobs is None:
            return _NO_LOGPROBS
        told = (step.extra or {}).get("tokenizer")
        if told is not None and told != tokenizer:
            raise DataError(
                f"{path}: the token ids of episode {episode.episode_id} are of the tokenizer {told},"
                f" and the model's is {tokenizer}",
                hint="train the model that played, or one with the same tokenizer",
            )
    return None


def _acting(episode: Episode) -> tuple[bool, ...]:
    """Return which steps acted on the environment; all if no step has a result (as in `weights.weighing`)."""
    acting = tuple(
        any(told is not None for told in (step.action_executed, step.reward, step.terminated))
        for step in episode.steps
    )
    return acting if any(acting) else (True,) * len(acting)


def _trace(episode: Episode) -> Trace:
    score = _score(episode)
    assert score is not None
    steps = episode.steps
    return Trace(
        group=(episode.env_id, episode.task, episode.episode_id if episode.seed is None else episode.seed),
        score=score,
        is_success=episode.outcome == Outcome.SUCCESS,
        rows=tuple(map(_row, steps)),
        rewards=tuple(math.nan if step.reward is None else step.reward for step in steps),
        observations=tuple(step.observation for step in steps),
        acting=_acting(episode),
        n_invalid=sum(step.action_valid is False for step in steps),
    )


def _row(step: Transition) -> StepRow:
    completion = step.completion_token_ids or ()
    return StepRow(step.prompt_token_ids or (), completion, step.logprobs or (0.0,) * len(completion))


def _ask(step: Transition) -> Ask | None:
    """Return the request of a step whose answer was constrained by a grammar; None for others."""
    extra: Any = step.extra or {}
    if not (extra.get("sampling") or {}).get("is_masked") or not isinstance(extra.get("request"), dict):
        return None
    held = {name: value for name, value in extra["request"].items() if name in _HELD_TO}
    tools = [as_tool(tool) for tool in step.tools or ()] or None
    about = {"model": "", "messages": [{"role": "user"}], "tools": tools}
    (ask,) = request_of(ChatRequest, {**about, **held}).asks(max_new_tokens=1)
    return ask


def _with_allowed(row: StepRow, ask: Ask | None, voice: Voice) -> StepRow:
    """Return the row with the tokens that its grammar allowed, from which it was sampled."""
    return row if ask is None else row._replace(allowed=allowed_tokens(voice, ask, row.completion))


def _score(episode: Episode) -> float | None:
    found = episode.metrics.get(RETURN_METRIC)
    return episode.total_reward if found is None else float(found)
