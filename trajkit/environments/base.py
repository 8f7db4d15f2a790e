"""The protocol of a text environment: seeds, observations and actions as text, and a rule for actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

DEFAULT_TASK = "default"
"""The task of an environment without tasks."""

DEFAULT_SUCCESS = "episode_return > 0"
"""The condition for success of an environment that states none."""


class Start(NamedTuple):
    """The start of an episode, before the agent's first action."""

    mission: str
    """The goal, as text."""
    observation: str
    """The first observation."""
    initial_state_hash: str = ""
    """Hash of the complete initial state and mission: equal exactly when episodes start in the same state.

    Your own environment may leave it out. trajkit then hashes task, mission and first observation, and puts
    `text:` before the hash."""
    room_hash: str = ""
    """Hash of the initial state without task and mission: equal exactly when two tasks start in the same
    room. Empty if the environment does not give it."""


class Result(NamedTuple):
    """The result of one action."""

    observation: str
    """The next observation."""
    reward: float
    """Reward for this action."""
    terminated: bool
    """Whether the task ended by itself: success or final failure."""
    truncated: bool
    """Whether the step limit ended the episode. Both are true if the task ended at the last allowed step."""
    action_executed: str = ""
    """The executed action. Default: the agent's text."""
    action_valid: bool = True
    """Whether the text was a valid action. If not, the environment executed its default.

    If `action_executed` is left out, the text is valid if it is one of the legal actions."""


class Resolved(NamedTuple):
    """The action that a text stands for."""

    action: str
    is_valid: bool


class ActionRule(NamedTuple):
    """The valid actions, and the action for any other text. It needs no environment."""

    actions: tuple[str, ...]
    """All actions. A text must match exactly."""
    default: str
    """The action that is executed for an invalid text."""

    def resolve(self, text: str | None) -> Resolved:
        """Return the action of `text`, or the default, marked as invalid."""
        if text in self.actions:
            return Resolved(text, True)
        return Resolved(self.default, False)


class Playable(Protocol):
    """The methods that your own environment must have; trajkit wraps it as an `Environment`.

    It may also have `legal_actions`, `statistics` and `close` as in `Environment`, `expert_action` as in
    `HasExpert`, and `max_steps`, the step limit of an episode.
    """

    def reset(self, seed: int, /) -> Start | tuple[str, str]:
        """Start the episode of this seed. Return a `Start`, or the mission and the first observation."""
        ...

    def step(self, text: str | None, /) -> Result | tuple[str, float, bool, bool]:
        """Execute an action. Return a `Result`, or observation, reward, terminated and truncated."""
        ...


class Environment(Protocol):
    """A seeded text environment for one agent.

    After a step that is terminated or truncated, the episode is over, and another step raises `RolloutError`.
    It prints nothing. One instance can play many episodes, one after the other.
    """

    env_id: str
    """Name of the environment, such as `babyai`."""
    task: str
    """Name of the task."""

    def reset(self, seed: int) -> Start:
        """Start the episode of this seed. The same seed gives the same initial state in any process."""
        ...

    def step(self, text: str | None) -> Result:
        """Execute an action; None stands for an answer without an action."""
        ...

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that are available now; empty if any text is an action."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return the scores of the episode so far by metric name, such as `{"progression": 1.0}`.

        The names stay the same during an episode.
        """
        ...

    def close(self) -> None:
        """Release all resources. A second call does nothing."""
        ...


@runtime_checkable
class HasExpert(Protocol):
    """An environment that has an expert."""

    def expert_action(self) -> str:
        """Return the expert's next action in the current state, also after actions that others chose."""
        ...


def step_limit(environment: Environment) -> int | None:
    """Return the step limit of the current episode (`max_steps`), or None if the environment states none."""
    limit: int | None = getattr(environment, "max_steps", None)
    return limit


class EnvironmentInfo(NamedTuple):
    """Description of an environment that need not be created."""

    env_id: str
    """Name on the command line and in the tag `trajkit.env`."""
    tasks: tuple[str, ...]
    """The tasks."""
    rule: ActionRule | None
    """The rule for actions; None if the valid actions depend on the state."""
    success: str
    """The condition for success, on a statistic or `episode_return`, such as `progression >= 1`."""
    make: Callable[[str], Environment]
    """Create the environment for a task. It raises `MissingExtra` if the package is not installed."""
