"""The chat completion requests that a model on this machine answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trajkit.errors import RequestError, TrajkitError
from trajkit.formats.chat.request import Part, Refusal, ResponseFormat, Wire
from trajkit.models.generation.ask import Ask, AskError

_STRIDE = 0x9E3779B97F4A7C15  # the golden ratio as a fraction of 2**64: seeds that are far apart
_MOST_ANSWERS = 128
_MOST_TOP = 20
_MOST_STOPS = 64
_Stop = Annotated[str, Field(max_length=1000)]
_FIELDS = {
    "json_schema": "response_format",
    "max_new_tokens": "max_completion_tokens",
    "n_logprobs": "top_logprobs",
}
"""Fields of an ask that have another name in a request."""


class _CalledFunction(Wire):
    name: str
    arguments: str


class _Call(Wire):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction


class _Message(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _StreamOptions(Wire):
    include_usage: bool = False


class ChatRequest(Wire):
    """The fields that the server reads of a request."""

    model: str
    messages: list[_Message] = Field(min_length=1)
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=_MOST_ANSWERS)] | None = None
    seed: int | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=_MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=_MOST_TOP)] | None = None
    return_token_ids: bool | None = None
    prompt_cache_key: str | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def asks(self, *, max_new_tokens: int) -> list[Ask]:
        """Convert the request to one ask per answer.

        Args:
            max_new_tokens: Maximum tokens per answer, unless the request sets its own limit.

        Raises:
            Refusal: A part of the request is not supported.
        """
        self._check()
        first = Ask(
            messages=[_message(message) for message in self.messages],
            model=self.model,
            max_new_tokens=self.max_completion_tokens or self.max_tokens or max_new_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            json_schema=self._schema(),
            tools=self.tools,
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            stop=[self.stop] if isinstance(self.stop, str) else self.stop or (),
            conversation=self.prompt_cache_key if self.return_token_ids else None,
            n_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )
        seeds = [None if self.seed is None else self.seed + place * _STRIDE for place in range(self.n or 1)]
        return [first._replace(seed=seed) for seed in seeds]

    def _check(self) -> None:
        for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
            if getattr(self, name):
                raise Refusal(f"{name} is not supported", param=name)
        if self.top_logprobs and not self.logprobs:
            raise Refusal("top_logprobs needs logprobs", param="top_logprobs")

    def _schema(self) -> dict[str, Any] | None:
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "object"}
        if wanted.json_schema is None:
            raise Refusal(
                "response_format of type json_schema has no json_schema", param="response_format.json_schema"
            )
        return wanted.json_schema.schema_ or {}


def _message(message: _Message) -> dict[str, Any]:
    """Convert a message for chat templates: one text, and a role that they support."""
    written = message.model_dump(exclude_none=True)
    if message.role == "developer":
        written["role"] = "system"
    if isinstance(message.content, list):
        stranger = next((part.type for part in message.content if part.type not in ("text", "refusal")), None)
        if stranger is not None:
            raise Refusal(f"content of type {stranger!r} is not supported, only text", param="messages")
        written["content"] = "\n".join(part.text or part.refusal or "" for part in message.content)
    return written


def refusal_of(error: TrajkitError) -> Refusal:
    """Convert an error of the library to an HTTP refusal."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, AskError):
        is_stranger = error.param == "model"
        param = _FIELDS.get(error.param or "", error.param)
        return Refusal(
            str(error),
            param=param,
            status=404 if is_stranger else 400,
            code="model_not_found" if is_stranger else error.code,
        )
    if isinstance(error, RequestError):  # raised by a chat template
        return Refusal(str(error), param="messages")
    return Refusal(str(error), status=500, kind="server_error")
