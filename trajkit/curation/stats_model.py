"""What `trajkit stats` says of a dataset."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from trajkit._core import console
from trajkit._core.result import Result
from trajkit.schema import Left, MetricLevel, Model


class Estimate(Model):
    """A mean or a share with its interval."""

    value: float
    """The mean, or the share."""
    low: float | None
    """Lower bound; None where nothing can be said, as of a single value."""
    high: float | None
    """Upper bound."""
    n: int
    """How many episodes, or steps, were measured."""


class Group(Model):
    """Episodes that have something in common."""

    by: str
    """`all`, `task`, `variant`, `purpose` or `split`."""
    name: str | None
    """The task (with its environment), the variant and so on; None when unknown."""
    n_episodes: int
    """Episodes of it; one with several variants counts for each."""
    n_steps: int
    """Their steps."""
    n_unjudged: int
    """Episodes whose outcome is unknown or an error; they say nothing of success."""
    success: Estimate | None
    """Share of successes among the others, with Wilson's interval."""
    score: Estimate | None
    """Mean of the score."""
    n_steps_each: Estimate | None
    """Mean length of an episode, in steps."""
    n_input_tokens: Estimate | None
    """Mean tokens of an episode's prompts, where they were counted."""
    n_output_tokens: Estimate | None
    """Mean tokens of an episode's answers, where they were counted."""


class Spread(Model):
    """How a number is spread: percentiles are values that occur (the smallest that so many do not exceed)."""

    of: str
    """What is measured."""
    n: int
    """How many were."""
    n_unknown: int
    """How many were not."""
    least: float
    """Smallest value."""
    p5: float
    """Not exceeded by 5 in 100."""
    p25: float
    """Not exceeded by a quarter."""
    p50: float
    """The median."""
    p75: float
    """Not exceeded by three quarters."""
    p95: float
    """Not exceeded by 95 in 100."""
    p99: float
    """Not exceeded by 99 in 100."""
    most: float
    """Largest value."""
    edges: tuple[float, ...]
    """Edges of the bars of a histogram, rising; a bar holds its left edge, the last one both."""
    heights: tuple[int, ...]
    """How many fall into each bar."""


class ActionCount(Model):
    """An action and how often it was taken."""

    action: str
    """The action executed, else the one that the answer names."""
    n: int
    """Steps."""


class Coverage(Model):
    """How much of the world the episodes have seen."""

    n_tasks: int
    """Distinct tasks, with their environments."""
    n_worlds: int
    """Distinct environment, task and seed."""
    n_without_seed: int
    """Episodes without a seed."""
    n_initial_states: int
    """Distinct initial states."""
    n_without_state: int
    """Episodes whose initial state is unknown."""
    n_actions: int
    """Distinct actions."""
    entropy_bits: float
    """Shannon's entropy of the actions, in bits."""
    entropy_share: float | None
    """The same over that of equally frequent actions; None with fewer than two."""
    actions: tuple[ActionCount, ...]
    """The most frequent first; at most 20."""
    n_without_action: int
    """Steps with no action."""
    n_invalid: int
    """Steps whose answer named no action of the environment."""
    n_unjudged: int
    """Steps of which nobody knows whether it did."""


class Duplicates(Model):
    """How much is there more than once."""

    n_episodes: int
    """Episodes whose start is known (initial state or seed) and that acted."""
    n_same_episodes: int
    """Those of them that repeat another: the same actions from the same start."""
    n_answers: int
    """Steps with a known prompt and an answer."""
    n_same_answers: int
    """Those of them that repeat another: the same prompt and the same answer."""
    n_prompts: int
    """Distinct prompts among these steps."""


class Weights(Model):
    """What training will learn from, and how unequally."""

    n_learned: int
    """Steps that are learned: weight above 0, an answer and a known prompt, in no evaluation episode."""
    n_episodes_learned: int
    """Episodes with such a step."""
    not_learned: dict[str, int]
    """The other steps, by reason."""
    least: float | None
    """Smallest weight of a step that is learned."""
    mean: float | None
    """Their mean."""
    most: float | None
    """Largest."""
    effective_steps: float | None
    """Kish's effective sample size of the steps: so many of equal weight say as much."""
    effective_episodes: float | None
    """The same of the episodes, each with the sum of its weights."""
    n_tokens: int | None
    """Tokens of the answers that are learned, as their providers counted them; None when nobody did."""
    n_uncounted: int
    """Learned steps whose tokens nobody counted."""


class Stage(Model):
    """One stage on the way from what was exported to what is learned."""

    name: str
    """What was done."""
    n_episodes: int
    """Episodes after it."""
    n_steps: int
    """Steps after it."""
    n_tokens: int | None = None
    """Tokens of their answers; None where no store has them any more, or nobody counted."""
    left: tuple[Left, ...] = ()
    """What it left behind, and what it keeps as context only, by reason."""


class Measured(Model):
    """A metric of the feedback, over all that have it."""

    name: str
    """Its name."""
    level: MetricLevel
    """Whether it is about episodes or about steps."""
    is_share: bool
    """Whether it is a yes or no, so that its value is the share of yes."""
    value: Estimate | None
    """Its mean, or the share; None when nothing has it."""


class Stats(Model, Result):
    """Numbers about a store, or about several that belong together."""

    stores: tuple[Path, ...]
    """Where they are."""
    digests: tuple[str, ...]
    """The digests of their contents."""
    n_episodes: int
    """Episodes in them."""
    n_steps: int
    """Steps in them."""
    confidence: float
    """Of every interval."""
    interval: str
    """How the means got theirs, in words; shares always have Wilson's."""
    score_name: str | None
    """What the score is: a metric, or `total_reward`; None when there is neither."""
    groups: tuple[Group, ...]
    """All; then by task, variant, purpose and split, the largest first."""
    n_groups: dict[str, int]
    """How many groups there are of each kind; more than are listed when there are very many."""
    spreads: tuple[Spread, ...]
    """Of what was measured at all."""
    metrics: tuple[Measured, ...]
    """Each metric that a store has a column for, by level and name."""
    coverage: Coverage
    """How much of the world the episodes have seen."""
    duplicates: Duplicates
    """How much is there more than once."""
    weights: Weights
    """What training will learn from."""
    funnel: tuple[Stage, ...]
    """From what was exported to what is learned."""

    def to_json(self) -> dict[str, Any]:
        """The numbers."""
        return self.model_dump(mode="json")

    def __str__(self) -> str:
        from trajkit.curation.stats_text import lines

        return "\n".join(console.line(*pieces) for pieces in lines(self))

    def print_text(self) -> None:
        """Print the numbers on stdout; on a terminal with bars, and no wider than it."""
        from trajkit.curation.stats_text import lines

        n_columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for pieces in lines(self, n_columns):
            console.result(*pieces)
