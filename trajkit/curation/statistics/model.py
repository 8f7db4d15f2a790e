"""The results of `trajkit stats`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from trajkit._core.output import console
from trajkit._core.output.result import Result
from trajkit.schema import Left, MetricLevel, Model


class Estimate(Model):
    """A mean or a share with its interval."""

    value: float
    """The mean, or the share."""
    low: float | None
    """Lower bound; None if there is none, as for a single value."""
    high: float | None
    """Upper bound."""
    n: int
    """Number of measured episodes or steps."""


class Group(Model):
    """Episodes that share a task, a variant or the like."""

    by: str
    """`all`, `task`, `variant`, `purpose`, `split`, or the requested columns."""
    name: str | None
    """The task (with its environment), the variant and so on; None when unknown."""
    n_episodes: int
    """Its episodes; one with several variants counts for each."""
    n_steps: int
    """Their steps."""
    n_unjudged: int
    """Episodes whose outcome is unknown or an error; they are not used for `success`."""
    success: Estimate | None
    """Share of successes among the others, with Wilson's interval."""
    score: Estimate | None
    """Mean of the score."""
    n_steps_each: Estimate | None
    """Mean length of an episode, in steps."""
    n_input_tokens: Estimate | None
    """Mean tokens of an episode's prompts, if they were counted."""
    n_output_tokens: Estimate | None
    """Mean tokens of an episode's answers, if they were counted."""


class Spread(Model):
    """Distribution of a number. A percentile is the smallest value that this share does not exceed."""

    of: str
    """Name of the number."""
    n: int
    """Number of values."""
    n_unknown: int
    """Number of unknown values."""
    least: float
    """Smallest value."""
    p5: float
    p25: float
    p50: float
    """The median."""
    p75: float
    p95: float
    p99: float
    most: float
    """Largest value."""
    edges: tuple[float, ...]
    """Edges of a histogram's bars, ascending; a bar includes its left edge, the last bar both."""
    heights: tuple[int, ...]
    """Number of values in each bar."""


class ActionCount(Model):
    """An action and how often it was taken."""

    action: str
    """The executed action, else the one in the answer; of tool calls the names of the tools."""
    n: int
    """Number of steps."""


class Coverage(Model):
    """How much of the environments the episodes cover."""

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
    """Entropy relative to equally frequent actions; None with fewer than two."""
    actions: tuple[ActionCount, ...]
    """The most frequent first; at most 20."""
    n_without_action: int
    """Steps without an action."""
    n_invalid: int
    """Steps whose answer named no action of the environment."""
    n_unjudged: int
    """Steps for which this is unknown."""


class Duplicates(Model):
    """Counts of repeated episodes and answers."""

    n_episodes: int
    """Episodes with an action and a known start (initial state or seed)."""
    n_same_episodes: int
    """Episodes that repeat another: the same actions from the same start."""
    n_answers: int
    """Steps with a known prompt and an answer."""
    n_same_answers: int
    """Steps that repeat another: the same prompt and the same answer."""
    n_prompts: int
    """Distinct prompts among these steps."""


class Weights(Model):
    """The learned steps and the distribution of their weights."""

    n_learned: int
    """Steps that are learned: weight above 0, an answer and a known prompt, in no evaluation episode."""
    n_episodes_learned: int
    """Episodes with such a step."""
    not_learned: dict[str, int]
    """The other steps, by reason."""
    least: float | None
    """Smallest weight of a learned step."""
    mean: float | None
    """Mean weight."""
    most: float | None
    """Largest weight."""
    effective_steps: float | None
    """Kish's effective sample size of the steps: this many equal weights have the same precision."""
    effective_episodes: float | None
    """The same for episodes, each with the sum of its weights."""
    n_tokens: int | None
    """Tokens of the learned answers, as their providers counted them; None if none were counted."""
    n_uncounted: int
    """Learned steps whose tokens were not counted."""


class Stage(Model):
    """One stage between the exported and the learned episodes."""

    name: str
    """Name of the command or stage."""
    n_episodes: int
    """Episodes after it."""
    n_steps: int
    """Steps after it."""
    n_tokens: int | None = None
    """Tokens of their answers; None if unknown."""
    left: tuple[Left, ...] = ()
    """Episodes and steps that it left out, and steps that it made context only, by reason."""


class Measured(Model):
    """A metric over all episodes or steps that have it."""

    name: str
    level: MetricLevel
    """Whether it is measured on episodes or steps."""
    is_share: bool
    """Whether it is a boolean, so that its value is the share of true."""
    value: Estimate | None
    """Its mean, or the share; None if nothing has it."""


class Stats(Model, Result):
    """Statistics of a store, or of several that belong together."""

    stores: tuple[Path, ...]
    """Paths of the stores."""
    digests: tuple[str, ...]
    """Digests of their contents."""
    n_episodes: int
    """Episodes in them."""
    n_steps: int
    """Steps in them."""
    confidence: float
    """Confidence of every interval."""
    interval: str
    """How the intervals of means were computed; shares always have Wilson's."""
    score_name: str | None
    """The score: a metric, or `total_reward`; None if there is neither."""
    groups: tuple[Group, ...]
    """All episodes; then by task, variant, purpose and split, the largest first."""
    n_groups: dict[str, int]
    """Number of groups of each kind; more than are listed if there are very many."""
    spreads: tuple[Spread, ...]
    """Distributions of the numbers that have values."""
    metrics: tuple[Measured, ...]
    """Each metric that a store has a column for, by level and name."""
    coverage: Coverage
    duplicates: Duplicates
    weights: Weights
    funnel: tuple[Stage, ...]
    """From the exported episodes to the learned ones."""

    def __str__(self) -> str:
        from trajkit.curation.statistics.text import lines

        return "\n".join(console.line(*pieces) for pieces in lines(self))

    def print_text(self) -> None:
        """Print the statistics on stdout; on a terminal with bars, and no wider than it."""
        from trajkit.curation.statistics.text import lines

        n_columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for pieces in lines(self, n_columns):
            console.result(*pieces)
