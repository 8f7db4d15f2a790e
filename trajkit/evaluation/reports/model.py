"""The data of a report: results of variants, their differences, regressions and intervals."""

from __future__ import annotations

from pathlib import Path

from trajkit.evaluation.estimates.compare import Comparison
from trajkit.evaluation.estimates.estimate import Estimate
from trajkit.schema import Model
from trajkit.schema.base import Count, Name, Text
from trajkit.schema.manifest import Sha256


class StoreSide(Model):
    """A store that was read."""

    path: Path
    """Folder of the store."""
    digest: Sha256
    """Digest of its content."""
    name: Text | None = None
    """Name that the user gave its episodes; None if groups are named after their variants."""


class Training(Model):
    """The training data of a variant's model."""

    model: Name
    """The model, or its job."""
    n_episodes: Count
    """Episodes of the training store."""
    n_learned: Count
    """Steps of the training store whose completions were learned."""


class PerSuccess(Model):
    """The cost of a success: all spending, failures included, over the number of successes."""

    of: Name
    """`tokens` (prompts and answers) or `cost_usd`."""
    value: float | None
    """None if nothing succeeded."""
    low: float | None
    """Lower bound, by the bootstrap within tasks; None if there is nothing to resample."""
    high: float | None
    """Upper bound; None if resamples without any success reach it."""
    n: Count
    """Episodes whose end and whose tokens or cost are known."""
    n_successes: Count
    """Successes among these episodes."""


class GroupResult(Model):
    """The results of one group."""

    name: Name
    """The variant, plus the parts that distinguish the group from the others."""
    variant: Text | None
    """The variant or policy; None when unknown."""
    decoding: Text | None
    """Decoding settings of the answers; None when they were not fixed."""
    models: tuple[Text, ...] = ()
    """The models that answered, as the store names them."""
    n_episodes: Count
    """Episodes of the group."""
    n_worlds: Count
    """Distinct combinations of environment, task and seed; an episode without a seed counts as one."""
    estimates: tuple[Estimate, ...]
    """Means by measure, over all tasks and per task."""
    outcomes: dict[str, int]
    """Episodes by outcome: success, failure, truncated, error, unknown. The last two do not count for
    success."""
    finish_reasons: dict[str, int]
    """Answers by the finish reason that the model's service gave; empty if it gave none."""
    n_judged: Count
    """Answers that are known to have named an action or not."""
    n_invalid: Count
    """Answers that named no action."""
    per_success: tuple[PerSuccess, ...]
    """Tokens and cost per success, if known."""
    training: Training | None = None
    """Training data of the model; None when unknown, or when the model is not tuned."""

    def estimate(self, metric: str, task: str | None = None) -> Estimate | None:
        """Return the estimate of a measure; None if there is none."""
        return next((each for each in self.estimates if (each.metric, each.task) == (metric, task)), None)


class Moment(Model):
    """One step of an episode, shown in a regression."""

    observation: Text | None
    """Observation of the agent, shortened if it is long."""
    action: Text | None
    """Action of the agent."""
    is_valid: bool | None
    """Whether the answer named an action; None when unknown."""
    reward: float | None
    """Reward of the action."""


class Played(Model):
    """An episode that a regression names."""

    group: Name
    """Group that played it."""
    episode_id: Name
    """Id of the episode."""
    store: Path
    """Store of the episode: `trajkit show STORE EPISODE` prints all of it."""
    outcome: Name
    """Outcome of the episode."""
    n_steps: Count
    """Number of steps."""
    moments: tuple[Moment, ...] = ()
    """The last steps; empty beyond the first regressions of a comparison."""


class Regression(Model):
    """A world in which the baseline succeeded and the candidate did not."""

    baseline: Name
    """Name of the group compared against."""
    candidate: Name
    """Name of the group that is compared with it."""
    task: Text
    """Task as `env_id/task`."""
    seed: int
    """Seed of the world."""
    episodes: tuple[Played, ...]
    """The baseline's episode, then the candidate's."""


class Unaliased(Model):
    """The results on worlds whose text is in none of the training stores."""

    trained_on: tuple[StoreSide, ...]
    """The training stores."""
    n_worlds: Count
    """Worlds of the evaluation."""
    n_aliased: Count
    """Worlds whose mission and first text are also in a training store; these results leave them out."""
    leaks: tuple[Text, ...]
    """Forbidden overlaps between evaluation and training stores beyond such text; empty as it must be."""
    groups: tuple[GroupResult, ...]
    """Results of the groups on the other worlds; empty if no world is left."""
    comparisons: tuple[Comparison, ...]
    """Differences on the other worlds."""


class ReportData(Model):
    """The whole content of a report; `report.json` has this shape."""

    report_version: int = 1
    """Version of this shape."""
    trajkit_version: Name
    """Version of trajkit that wrote the report."""
    stores: tuple[StoreSide, ...]
    """The stores that were read."""
    confidence: float
    """Confidence of every interval."""
    resamples: Count
    """Resamples of each bootstrap."""
    seed: int
    """Seed of the bootstrap."""
    n_episodes: Count
    """Episodes in the groups."""
    tasks: tuple[Text, ...]
    """All tasks, as `env_id/task`."""
    measures: tuple[Name, ...]
    """Measures with a value in any group: success, the return, then the others."""
    groups: tuple[GroupResult, ...]
    """Results of each group, in the order in which they were played."""
    comparisons: tuple[Comparison, ...]
    """Each baseline with each other group, by measure: over all tasks and per task."""
    regressions: tuple[Regression, ...]
    """Worlds that got worse."""
    n_improved: dict[str, int] = {}
    """Number of worlds that got better, by `candidate against baseline`."""
    unaliased: Unaliased | None = None
    """The results on worlds whose text is in no training store; None if no training store is named."""
    notes: tuple[Text, ...] = ()
    """Notes for the reader, such as which episodes were left out or could not be paired."""
