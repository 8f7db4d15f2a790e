"""BabyAI and TextWorldExpress with random rewards: an episode ends with a number drawn at random.

needs    trajkit[babyai] or trajkit[textworld]; no key, no network, no GPU
minutes  none by itself
cost     none
leaves   nothing

An episode that is cut off from outside (`--max-episode-steps`) has no reward, which would be a signal:
let the environment end it. The control of `recipes/results.py` and `recipes/results_textworld.py`.
Alone, in this folder:
    trajkit rl local --env random_rewards:RandomRewards --task goto --model sample:tiny-base
"""

import random

from trajkit.environments import babyai, textworld
from trajkit.environments.base import Result

DRAWN = random.Random(0)
"""One generator per process, so that attempts at one seed get different rewards."""


def drawn(result: Result) -> Result:
    """Give the last step a reward between 0 and 1, and all others 0."""
    is_over = result.terminated or result.truncated
    return result._replace(reward=DRAWN.random() if is_over else 0.0)


class RandomRewards(babyai.BabyAI):
    """One task of BabyAI.

    Args:
        task: As for BabyAI.
    """

    env_id = "babyai-random-rewards"
    tasks = babyai.TASKS
    action_rule = babyai.INFO.rule
    success = babyai.INFO.success

    def step(self, text: str | None) -> Result:
        """Execute an action."""
        return drawn(super().step(text))


class RandomTextWorld(textworld.TextWorld):
    """A game of TextWorldExpress.

    Args:
        task: As for TextWorldExpress.
        **settings: As for TextWorldExpress.
    """

    env_id = "textworld-random-rewards"
    tasks = textworld.TASKS
    success = textworld.INFO.success

    def __init__(self, task: str, **settings: int) -> None:
        super().__init__(task, **settings)

    def step(self, text: str | None) -> Result:
        """Execute an action."""
        return drawn(super().step(text))
