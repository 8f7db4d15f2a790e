"""Take one prompt and its recorded answer from a store, to compare with models' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from trajkit.errors import NothingMatched, RequestError
from trajkit.formats.chat.rows import ChatWriter
from trajkit.formats.trl import DIALECT
from trajkit.schema import Episode, Message, Model, Transition

if TYPE_CHECKING:
    from trajkit.store.dataset import Dataset


class Question(NamedTuple):
    """A prompt in the form of chat templates and chat APIs."""

    episode: Episode
    """Episode of the step."""
    step: Transition
    """The step."""
    prompt: tuple[Message, ...]
    """Every message that the model saw."""
    messages: list[dict[str, Any]]
    """The same as JSON; arguments of tool calls are objects."""
    tools: list[dict[str, Any]] | None
    """Tools that the model could call; None without any."""
    recorded: list[dict[str, Any]] | None
    """The recorded answer, as JSON; None when there is none."""
    losses: tuple[str, ...]
    """Kinds of prompt content that cannot be written as text."""


class Answered(NamedTuple):
    """An answer to the prompt."""

    by: str
    """`recorded`, `base` or `tuned`."""
    model: str | None
    """Name of the model; None when unknown."""
    text: str
    """The answer without the end of the turn."""
    n_tokens: int | None
    """Its tokens; None when unknown."""
    is_cut: bool = False
    """Whether it ended at its token limit."""
    problem: str | None = None
    """Why there is no answer; None if there is one."""


class Sampling(Model):
    """Settings of the sampling."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 takes the most likely tokens; there is no top-k and no top-p."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 256
    """Maximum tokens per answer."""
    seed: int = 0
    """Seed of the sampling, on this machine."""
    n: Annotated[int, Field(ge=1)] = 1
    """Answers per model."""

    def checked(self) -> Sampling:
        """Check and return the settings.

        Raises:
            RequestError: They contradict each other.
        """
        if self.n > 1 and not self.temperature:
            raise RequestError(f"{self.n} answers at temperature 0 would be equal", hint="--temperature 1")
        return self


def question(dataset: Dataset, place: str) -> Question:
    """Return the prompt of one step.

    Args:
        dataset: The dataset of the step.
        place: EPISODE:STEP; the episode by its id, the beginning of the id, or its position from 0.

    Raises:
        RequestError: The place has another form, or the step has no prompt.
        NothingMatched: There is no such episode or step; the hint lists what there is.
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
        raise RequestError(f"the prompt of step {number} of episode {episode.episode_id} is unknown")
    writer = ChatWriter(DIALECT)
    messages = writer.messages(prompt, [0.0] * len(prompt))
    tools = writer.tools(step.tools or ()) or None
    losses = tuple(sorted({loss.kind.value for loss in writer.losses}))
    recorded = None if step.completion is None else list(writer.message(step.completion, 1, "completion"))
    return Question(episode, step, prompt, messages, tools, recorded, losses)
