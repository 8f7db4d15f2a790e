"""What `trajkit report` says: how variants did, how they differ, what got worse, and how sure that is."""

from __future__ import annotations

from pathlib import Path

from trajkit.evaluation.compare import Comparison
from trajkit.evaluation.estimate import Estimate
from trajkit.schema import Model
from trajkit.schema.base import Count, Name, Text
from trajkit.schema.manifest import Sha256


class StoreSide(Model):
    """A store that was read."""

    path: Path
    """Where it is."""
    digest: Sha256
    """Digest of its content."""
    name: Text | None = None
    """What its episodes were to be called; None for their variants' names."""


class Training(Model):
    """What a variant's model was trained on."""

    model: Name
    """The model, or its job."""
    n_episodes: Count
    """Episodes of the training store."""
    n_learned: Count
    """Steps of it that were learned."""


class PerSuccess(Model):
    """What a success costs: everything that was spent, failures included, over the successes."""

    of: Name
    """`tokens` (prompts and answers) or `cost_usd`."""
    value: float | None
    """None where nothing succeeded."""
    low: float | None
    """Lower bound, by the bootstrap within tasks; None where there is nothing to resample."""
    high: float | None
    """Upper bound; None where resamples without any success reach it."""
    n: Count
    """Episodes whose end and whose tokens or cost are known."""
    n_successes: Count
    """Successes among them."""


class GroupResult(Model):
    """How one group did."""

    name: Name
    """What it is called: the variant, with whatever else tells it from the others."""
    variant: Text | None
    """The variant or policy; None when unknown."""
    decoding: Text | None
    """How answers were drawn; None when nobody fixed it."""
    models: tuple[Text, ...] = ()
    """The models that answered, as the store has them."""
    n_episodes: Count
    """Its episodes."""
    n_worlds: Count
    """Distinct environment, task and seed; an episode without a seed counts as one."""
    estimates: tuple[Estimate, ...]
    """Means by measure, over all tasks and task by task."""
    outcomes: dict[str, int]
    """Episodes by how they ended: success, failure, truncated, error, unknown. The last two say nothing of
    success."""
    finish_reasons: dict[str, int]
    """Answers by why the model stopped, as its service said; empty where nobody did."""
    n_judged: Count
    """Answers of which it is known whether they named an action."""
    n_invalid: Count
    """Those that named none."""
    per_success: tuple[PerSuccess, ...]
    """Tokens and cost per success, where they were counted."""
    training: Training | None = None
    """What its model was trained on; None when unknown, or when it is not tuned."""

    def estimate(self, metric: str, task: str | None = None) -> Estimate | None:
        """The mean of a measure; None where there is none."""
        return next((each for each in self.estimates if (each.metric, each.task) == (metric, task)), None)


class Moment(Model):
    """One step of an episode, as far as it helps to see what happened."""

    observation: Text | None
    """What the agent saw, cut where it is long."""
    action: Text | None
    """What it did."""
    is_valid: bool | None
    """Whether its answer named an action; None when unknown."""
    reward: float | None
    """What it got for it."""


class Played(Model):
    """An episode that a regression names."""

    group: Name
    """Whose."""
    episode_id: Name
    """Which."""
    store: Path
    """Where it is: `trajkit show STORE EPISODE` prints all of it."""
    outcome: Name
    """How it ended."""
    n_steps: Count
    """Its steps."""
    moments: tuple[Moment, ...] = ()
    """The last of them; empty beyond the first regressions of a comparison."""


class Regression(Model):
    """A world in which the baseline succeeded and the candidate did not."""

    baseline: Name
    """The group compared against."""
    candidate: Name
    """The group compared with it."""
    task: Text
    """`env_id/task`."""
    seed: int
    """Its seed."""
    episodes: tuple[Played, ...]
    """The baseline's, then the candidate's."""


class Unaliased(Model):
    """The results on worlds that read like none of the training stores."""

    trained_on: tuple[StoreSide, ...]
    """What was learned."""
    n_worlds: Count
    """Worlds of the evaluation."""
    n_aliased: Count
    """Those whose mission and first text are also in a training store; they are left out here."""
    leaks: tuple[Text, ...]
    """What the evaluation has in common with what was learned beyond such text; empty as it must be."""
    groups: tuple[GroupResult, ...]
    """The groups on the other worlds; empty where none is left."""
    comparisons: tuple[Comparison, ...]
    """Their differences."""


class ReportData(Model):
    """Everything a report says; `report.json` is this."""

    report_version: int = 1
    """Version of this shape."""
    trajkit_version: Name
    """What wrote it."""
    stores: tuple[StoreSide, ...]
    """What was read."""
    confidence: float
    """Of every interval."""
    resamples: Count
    """Resamples of each bootstrap."""
    seed: int
    """Of its draws."""
    n_episodes: Count
    """Episodes in the groups."""
    tasks: tuple[Text, ...]
    """All of them, as `env_id/task`."""
    measures: tuple[Name, ...]
    """What was measured at all: success, the return, then the others."""
    groups: tuple[GroupResult, ...]
    """Each variant, in the order in which they were played."""
    comparisons: tuple[Comparison, ...]
    """Each baseline with each other group: by measure, over all tasks and task by task."""
    regressions: tuple[Regression, ...]
    """Worlds that got worse."""
    n_improved: dict[str, int] = {}
    """Worlds that got better, by `candidate against baseline`."""
    unaliased: Unaliased | None = None
    """The results on worlds that read like nothing learned; None where no training store is named."""
    notes: tuple[Text, ...] = ()
    """What a reader must know: what was left out, what could not be paired."""
