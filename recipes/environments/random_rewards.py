"""BabyAI with rewards that say nothing: an episode ends with a number drawn at random, however it went.

needs    trajkit[babyai]; no key, no network, no GPU
minutes  none by itself
cost     none
leaves   nothing

The control of the table rl of `recipes/results.py`. Alone, in this folder:
    trajkit rl local --env random_rewards:RandomRewards --task goto --model sample:tiny-base
"""

import random

from trajkit.environments.babyai import INFO, TASKS, BabyAI
from trajkit.environments.base import Result

DRAWN = random.Random(0)
"""Of the process, so that the attempts at one seed get different rewards."""


class RandomRewards(BabyAI):
    """One task of BabyAI.

    Args:
        task: As of BabyAI.
    """

    env_id = "babyai-random-rewards"
    tasks = TASKS
    action_rule = INFO.rule
    success = INFO.success

    def step(self, text: str | None) -> Result:
        """Execute an action; the last one has a reward between 0 and 1, all others 0."""
        result = super().step(text)
        is_over = result.terminated or result.truncated
        return result._replace(reward=DRAWN.random() if is_over else 0.0)
