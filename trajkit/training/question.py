"""One prompt of a store, to be put to a model: what it saw at a step, and what was answered then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from trajkit.errors import NothingMatched, RequestError
from trajkit.formats.chat_rows import ChatWriter
from trajkit.formats.trl import DIALECT
from trajkit.schema import Episode, Message, Model, Transition

if TYPE_CHECKING:
    from trajkit.store.dataset import Dataset


class Question(NamedTuple):
    """A prompt as chat templates and chat APIs take it."""

    episode: Episode
    """Whose step it is."""
    step: Transition
    """The step."""
    prompt: tuple[Message, ...]
    """Every message that the model saw."""
    messages: list[dict[str, Any]]
    """The same as JSON; arguments of tool calls are objects."""
    tools: list[dict[str, Any]] | None
    """The tools that it could call; None without any."""
    recorded: list[dict[str, Any]] | None
    """What was answered, as JSON; None when nothing was."""
    losses: tuple[str, ...]
    """What of the prompt could not be put as text, by kind."""


class Answered(NamedTuple):
    """What somebody answered."""

    by: str
    """`recorded`, `base` or `tuned`."""
    model: str | None
    """Which model; None when nobody says."""
    text: str
    """As it was written, without what ends the turn."""
    n_tokens: int | None
    """Its tokens; None when nobody counted."""
    is_cut: bool = False
    """It was not done when it had as many tokens as it may."""
    problem: str | None = None
    """Why there is no answer; None where there is one."""


class Sampling(Model):
    """How answers are drawn."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 takes the most probable token each time; nothing else narrows the choice (no top-k, no top-p)."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 256
    """Most tokens of an answer."""
    seed: int = 0
    """The same answers again, where they are drawn on this machine."""
    n: Annotated[int, Field(ge=1)] = 1
    """Answers of each model."""

    def checked(self) -> Sampling:
        """These settings.

        Raises:
            RequestError: They make no sense together.
        """
        if self.n > 1 and not self.temperature:
            raise RequestError(
                f"{self.n} answers at temperature 0 are one and the same", hint="--temperature 1"
            )
        return self


def question(dataset: Dataset, place: str) -> Question:
    """The prompt of one step.

    Args:
        dataset: Whose.
        place: EPISODE:STEP; the episode by its id, the beginning of it or its position from 0.

    Raises:
        RequestError: It is no such place, or the step has no prompt.
        NothingMatched: There is no such episode or step; the hint says what there is.
    """
    name, colon, index = place.rpartition(":")
    if not colon or not name or not index.isdecimal():
        raise RequestError(f"{place!r} is not EPISODE:STEP", hint="such as 0:3, the fourth step of the first")
    episode = dataset.episode(name)
    number = int(index)
    if number >= episode.n_steps:
        last = episode.n_steps - 1
        steps = "only step 0" if last == 0 else f"steps 0 to {last}"
        raise NothingMatched(
            f"episode {episode.episode_id} has no step {number}",
            hint=f"it has {steps if last >= 0 else 'no step'}",
        )
    step, prompt = episode.steps[number], episode.prompt(number)
    if not prompt:
        raise RequestError(f"the prompt of step {number} of episode {episode.episode_id} is not known")
    writer = ChatWriter(DIALECT)
    messages = writer.messages(prompt, [0.0] * len(prompt))
    tools = writer.tools(step.tools or ()) or None
    losses = tuple(sorted({loss.kind.value for loss in writer.losses}))
    recorded = None if step.completion is None else list(writer.message(step.completion, 1, "completion"))
    return Question(episode, step, prompt, messages, tools, recorded, losses)
