"""What a model of this machine is asked, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.sampled import Sampled


class AskError(RequestError):
    """A model cannot be asked this.

    Args:
        message: What is wrong with it.
        param: The field of `Ask` that is wrong; None when it is the whole.
        hint: What to do about it.
        code: A short word for it, where OpenAI has one.
    """

    def __init__(
        self, message: str, *, param: str | None = None, hint: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.param, self.code = param, code


class Ask(NamedTuple):
    """One prompt, and how it is to be answered."""

    messages: Sequence[Mapping[str, Any]]
    """The conversation, in OpenAI's shape."""
    model: str | None = None
    """Which of the names of the model answers; None for the first."""
    max_new_tokens: int = 64
    """The most tokens of the answer. It is shorter where the model has no room for as many."""
    temperature: float = 1.0
    """What the logarithms of chances are divided by; 0 takes the most likely token."""
    top_p: float = 1.0
    """Only the likeliest tokens that have this share of the chances are drawn; in (0, 1]."""
    seed: int | None = None
    """Of what is drawn: the same ask with the same seed has the same answer, whatever else is asked at the
    same time; None for another answer each time."""
    json_schema: Mapping[str, Any] | None = None
    """What the answer keeps to, token by token; None for any text."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """What the model may call, in OpenAI's shape."""
    tool_choice: str | Mapping[str, Any] | None = None
    """As OpenAI's: `none`, `auto`, `required`, or the one that is named; None for `auto`."""
    parallel_tool_calls: bool = True
    """Whether it may call more than one."""
    stop: Sequence[str] = ()
    """Texts that end the answer; they are not part of it."""
    conversation: str | None = None
    """What the conversation is called: a prompt that goes on from an earlier turn of it begins with the ids
    of that turn as they were sampled. None tokenises the whole prompt at once."""
    n_logprobs: int | None = None
    """How many of the likeliest tokens are told beside each one said; None to tell nothing, 0 for the chance
    of what was said alone."""


class ToolCall(NamedTuple):
    """A tool that the model calls."""

    name: str
    """Which."""
    arguments: str
    """Its arguments, as JSON."""


class Likely(NamedTuple):
    """A token and its chance."""

    token: int
    """Its number in the vocabulary."""
    logprob: float
    """The natural logarithm of the chance that the model gave it, before temperature, top_p and schema."""


class SaidToken(NamedTuple):
    """A token that was said, with the chance it had."""

    token: int
    """Its number in the vocabulary."""
    logprob: float
    """The natural logarithm of the chance that the model gave it, before temperature, top_p and schema."""
    top: tuple[Likely, ...]
    """The likeliest tokens at this place, the likeliest first."""


class Said(NamedTuple):
    """What a model answered."""

    text: str
    """The answer, without tool calls, the text that stopped it and the token that ends a turn."""
    tool_calls: tuple[ToolCall, ...]
    """The tools that it calls, in order."""
    tokens: tuple[int, ...]
    """Every token that it said, the one that ended the turn too."""
    logprobs: tuple[SaidToken, ...] | None
    """For each token of the answer but the one that ended it; None when they were not asked for."""
    n_input_tokens: int
    """Tokens of the prompt."""
    n_output_tokens: int
    """Tokens that were said, the one that ended the turn too."""
    finish_reason: str
    """`stop`, `length` when it was cut off, or `tool_calls`."""
    sampled: Sampled | None = None
    """The tokens of prompt and answer with the log-probabilities they were drawn with."""
