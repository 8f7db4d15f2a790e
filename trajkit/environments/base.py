"""What a text environment is: seeded, text in, text out, with its own rule for what an answer means."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

DEFAULT_TASK = "default"
"""The one task of an environment that has none."""

DEFAULT_SUCCESS = "episode_return > 0"
"""When an episode is a success where the environment does not say."""


class Start(NamedTuple):
    """What an agent is given before its first action."""

    mission: str
    """The goal in words."""
    observation: str
    """The first thing it sees."""
    initial_state_hash: str = ""
    """Hash of the complete initial state and mission; equal exactly when the episodes start alike.

    An environment of yours may leave it out: trajkit then hashes task, mission and first text, and marks that
    by `text:` before it."""
    room_hash: str = ""
    """Hash of the initial state without task and mission; equal exactly when two tasks begin in the same
    room. Empty where the environment does not say."""


class Result(NamedTuple):
    """What one action brought about."""

    observation: str
    """What the agent sees now."""
    reward: float
    """Reward for this action."""
    terminated: bool
    """The task reached an end of its own: success, or a failure that is final."""
    truncated: bool
    """The episode was cut off by the step limit. Both are true when it ended at the last step allowed."""
    action_executed: str = ""
    """The action that was carried out. Left out, it is what was said."""
    action_valid: bool = True
    """Whether the text named an action; when not, the environment's default was carried out.

    Where `action_executed` is left out, this is whether the text was among the legal actions."""


class Resolved(NamedTuple):
    """What a text means as an action."""

    action: str
    is_valid: bool


class ActionRule(NamedTuple):
    """Which texts are actions, and what any other text means. Pure: it needs no environment."""

    actions: tuple[str, ...]
    """Every action, compared as exact text."""
    default: str
    """What an invalid text is carried out as."""

    def resolve(self, text: str | None) -> Resolved:
        """The action that `text` names; the default, marked invalid, when it names none."""
        if text in self.actions:
            return Resolved(text, True)
        return Resolved(self.default, False)


class Playable(Protocol):
    """The least that an environment of yours has; trajkit makes an `Environment` of it.

    It may have more: `legal_actions`, `statistics` and `close` as `Environment` has them, `expert_action` as
    `HasExpert` has it, and `max_steps`, the step limit of the episode.
    """

    def reset(self, seed: int, /) -> Start | tuple[str, str]:
        """Begin the episode of this seed; `Start`, or mission and first observation."""
        ...

    def step(self, text: str | None, /) -> Result | tuple[str, float, bool, bool]:
        """Carry out what the agent said; `Result`, or observation, reward, terminated and truncated."""
        ...


class Environment(Protocol):
    """A seeded text world, played by one agent at a time.

    After a step that is terminated or truncated the episode is over; stepping on raises `RolloutError`.
    Nothing is ever printed. One instance may play many episodes, one after the other.
    """

    env_id: str
    """Name of the environment, such as `babyai`."""
    task: str
    """Name of the task within it."""

    def reset(self, seed: int) -> Start:
        """Begin the episode of this seed: the same seed gives the same world, in any process."""
        ...

    def step(self, text: str | None) -> Result:
        """Carry out what the agent said; None when it said nothing that can be read."""
        ...

    def legal_actions(self) -> tuple[str, ...]:
        """The actions open to the agent now; none where any text is an action."""
        ...

    def statistics(self) -> dict[str, float]:
        """Scores of the episode so far, by metric name, such as `{"progression": 1.0}`.

        The names are the same from the reset to the end.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds. A second call does nothing."""
        ...


@runtime_checkable
class HasExpert(Protocol):
    """An environment that knows how to solve itself."""

    def expert_action(self) -> str:
        """The expert's next action, given all that happened since the reset, its own advice or not."""
        ...


def step_limit(environment: Environment) -> int | None:
    """Step limit of the episode that was begun, where the environment says it as `max_steps`; else None."""
    limit: int | None = getattr(environment, "max_steps", None)
    return limit


class EnvironmentInfo(NamedTuple):
    """What is known of an environment without making one."""

    env_id: str
    """Its name on the command line and in the tag `trajkit.env`."""
    tasks: tuple[str, ...]
    """Its tasks."""
    rule: ActionRule | None
    """Its rule for answers; None when it depends on the state."""
    success: str
    """When an episode is a success, by a statistic or `episode_return`, such as `progression >= 1`."""
    make: Callable[[str], Environment]
    """Make one for a task; raises `MissingExtra` when its package is not installed."""
