"""Use an environment of trajkit as a Gymnasium environment with text observations and actions."""

from __future__ import annotations

from typing import Any

import gymnasium

from trajkit.environments.base import ActionRule, Environment, HasExpert, Result, step_limit

_WORLDS = 2**31
"""Number of seeds from which a world is drawn if none is given."""


class AnyText(gymnasium.spaces.Text):
    """Any text. Samples are legal actions, if these are known."""

    def __init__(self) -> None:
        super().__init__(max_length=1000)
        self.actions: tuple[str, ...] = ()
        """Actions to sample from; empty for random characters."""

    def contains(self, x: Any) -> bool:
        """Check whether a value is text."""
        return isinstance(x, str)

    def sample(self, *arguments: Any, **options: Any) -> str:
        """Return a random action, or random characters."""
        if self.actions:
            return self.actions[int(self.np_random.integers(len(self.actions)))]
        return super().sample(*arguments, **options)


class TextEnv(gymnasium.Env[str, str]):
    """An environment of trajkit whose observations and actions are text; see `gymnasium_env`."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}

    def __init__(self, environment: Environment, rule: ActionRule | None) -> None:
        self._environment = environment
        self._seen = ""
        self.render_mode = "ansi"
        self.observation_space = AnyText()
        self.action_space = self._actions = AnyText()
        if rule is not None:
            self._actions.actions = rule.actions
        self.mission = ""
        """The goal of the episode in words."""
        self.world: int | None = None
        """Seed of the episode."""
        if isinstance(environment, HasExpert):
            self.expert_action = environment.expert_action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the world of a seed, or a random one."""
        super().reset(seed=seed)
        self.world = int(self.np_random.integers(_WORLDS)) if seed is None else seed
        start = self._environment.reset(self.world)
        self.mission, self._seen = start.mission, start.observation
        about = {"mission": start.mission, "initial_state_hash": start.initial_state_hash}
        return start.observation, self._with_statistics(about)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Execute an action; for text that names no action, the environment executes its default."""
        result: Result = self._environment.step(action)
        self._seen = result.observation
        about = {"action_executed": result.action_executed, "action_valid": result.action_valid}
        return (
            result.observation,
            result.reward,
            result.terminated,
            result.truncated,
            self._with_statistics(about),
        )

    @property
    def max_steps(self) -> int | None:
        """Step limit of the episode; None if the environment states none."""
        return step_limit(self._environment)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the legal actions; empty if any text is an action."""
        return self._environment.legal_actions()

    def render(self) -> str:
        """Return the latest observation."""
        return self._seen

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _with_statistics(self, about: dict[str, Any]) -> dict[str, Any]:
        self._actions.actions = self._environment.legal_actions()
        return {**about, **self._environment.statistics()}
