"""Requests to a model on this machine, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.tokens.sampled import Sampled


class AskError(RequestError):
    """A request that the model cannot answer.

    Args:
        message: The problem.
        param: The field of `Ask` with the problem; None when it is the whole request.
        hint: The way out.
        code: OpenAI's error code if it has one.
    """

    def __init__(
        self, message: str, *, param: str | None = None, hint: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.param, self.code = param, code


class Ask(NamedTuple):
    """One prompt, and the settings of its answer."""

    messages: Sequence[Mapping[str, Any]]
    """The conversation, in OpenAI's format."""
    model: str | None = None
    """Name of the model; None for the first."""
    max_new_tokens: int = 64
    """Maximum tokens of the answer; fewer where the model's context has no room."""
    temperature: float = 1.0
    """Divisor of the logits; 0 takes the most likely token."""
    top_p: float = 1.0
    """Draw only from the likeliest tokens with this total probability; in (0, 1]."""
    seed: int | None = None
    """Seed of the draws: the same request with the same seed has the same answer, whatever else runs at the
    same time; None for another answer each time."""
    json_schema: Mapping[str, Any] | None = None
    """Schema that constrains the answer token by token; None for any text."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """Tools that the model may call, in OpenAI's format."""
    tool_choice: str | Mapping[str, Any] | None = None
    """OpenAI's choice: `none`, `auto`, `required`, or a named tool; None for `auto`."""
    parallel_tool_calls: bool = True
    """Whether the model may call several tools in one answer."""
    stop: Sequence[str] = ()
    """Texts that end the answer; they are not part of it."""
    conversation: str | None = None
    """Id of the conversation: a prompt that continues an earlier turn of it begins with the sampled token ids
    of that turn. None tokenises the whole prompt again."""
    n_logprobs: int | None = None
    """Number of likeliest tokens to report with each token of the answer; 0 reports only the token's own
    log-probability, None reports nothing."""


class ToolCall(NamedTuple):
    """A call of a tool."""

    name: str
    """Name of the tool."""
    arguments: str
    """Arguments, as JSON."""


class Likely(NamedTuple):
    """A token and its log-probability."""

    token: int
    """Token id."""
    logprob: float
    """Natural-log probability under the model, before temperature, top_p and schema."""


class SaidToken(NamedTuple):
    """A token of an answer, with its log-probability."""

    token: int
    """Token id."""
    logprob: float
    """Natural-log probability under the model, before temperature, top_p and schema."""
    top: tuple[Likely, ...]
    """The likeliest tokens at this position, the likeliest first."""


class Said(NamedTuple):
    """An answer of the model."""

    text: str
    """The text, without tool calls, the stop text and the token that ends the turn."""
    tool_calls: tuple[ToolCall, ...]
    """The tool calls, in order."""
    tokens: tuple[int, ...]
    """Every sampled token, including the one that ended the turn."""
    logprobs: tuple[SaidToken, ...] | None
    """One entry per token except for the one that ended the turn; None when not requested."""
    n_input_tokens: int
    """Tokens of the prompt."""
    n_output_tokens: int
    """Sampled tokens, including the one that ended the turn."""
    finish_reason: str
    """`stop`, `length` when the answer was cut off, or `tool_calls`."""
    sampled: Sampled | None = None
    """Token ids of prompt and answer, with the log-probabilities of the sampling."""
