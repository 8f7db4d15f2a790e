"""A world of one or two steps for a model of random weights: it wants a letter, and then another.

And an agent that plays there with the model.
"""

from __future__ import annotations

from trajkit.environments.base import Result, Start
from trajkit.rollouts.agent import Turn

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


async def talk(turn: Turn) -> str | None:
    """An agent whose conversation grows."""
    said = turn.memory.setdefault("said", [])
    said.append({"role": "user", "content": turn.observation})
    answer = (await turn.chat(said)).choices[0].message
    said.append(answer)
    return answer.content


class Letters:
    """The reward is 1 when the answer begins with a letter.

    Args:
        n_steps: Answers that are wanted.
        is_kind: Every answer is a good one.
        is_fickle: What is seen depends on how often the world was begun.
        is_blind: In worlds of seeds below 1000 the reward has nothing to do with the answer.
    """

    env_id = "letters"
    success = "episode_return > 0.5"

    n_begun = 0

    def __init__(
        self, n_steps: int = 1, is_kind: bool = False, is_fickle: bool = False, is_blind: bool = False
    ) -> None:
        self._n_steps, self._is_kind, self._is_fickle = n_steps, is_kind, is_fickle
        self._is_blind = is_blind

    def reset(self, seed: int) -> Start:
        Letters.n_begun += 1
        self._n_done, self._seed, self._number = 0, seed, Letters.n_begun
        self._mark = Letters.n_begun if self._is_fickle else seed
        return Start("say a letter", f"world {self._mark}", f"state {seed}")

    def step(self, text: str | None) -> Result:
        self._n_done += 1
        is_good = self._is_kind or (text or " ")[0] in LETTERS
        if self._is_blind and self._seed < 1000:
            is_good = self._number % 3 == 0
        is_over = self._n_done == self._n_steps
        seen = f"world {self._mark}, answer {self._n_done}"
        return Result(seen, float(is_good) / self._n_steps, is_over, False, text or "", True)
