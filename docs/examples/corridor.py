"""A corridor: an environment of Gymnasium whose observations are text."""

from typing import Any

import gymnasium
from gymnasium import spaces


class Corridor(gymnasium.Env[str, Any]):
    """Walk to the door, which is at one of the two ends, at an unknown distance."""

    observation_space = spaces.Text(100)
    action_space = spaces.Discrete(2)
    mission = "Go to the door."

    def __init__(self, length: int = 8) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.door = int(self.np_random.choice([0, self.length - 1]))
        self.place = int(self.np_random.integers(1, self.length - 1))
        start = f"{self.place} to {self.door} of {self.length}"
        return self.sight(), {"distance": abs(self.door - self.place), "initial_state_hash": start}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.place = min(max(self.place + (1 if action else -1), 0), self.length - 1)
        distance = abs(self.door - self.place)
        return self.sight(), float(distance == 0), distance == 0, False, {"distance": distance}

    def sight(self) -> str:
        return f"The door is {'left' if self.door < self.place else 'right'} of you."


gymnasium.register("Corridor-v0", entry_point="corridor:Corridor", max_episode_steps=30)
