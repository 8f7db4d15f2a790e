"""Call models through OpenAI's chat API: send a request, record the answer, classify failures."""

from __future__ import annotations

import abc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError
from pydantic_core import from_json

from trajkit._core.ids import time_of, uuid7
from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit.errors import RequestError
from trajkit.formats.chat.message import plain_messages, read_message, read_messages, read_tools
from trajkit.formats.tokens.sampled import Sampled, read_sampled, settings_of
from trajkit.rollouts.faults import (
    Fault,
    FaultKind,
    Faulty,
    fault_of_status,
    said_in,
    shown,
    shown_url,
    timed_out,
)
from trajkit.rollouts.policies import Answer
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Message, TextBlock
from trajkit.schema.base import JsonObject

if TYPE_CHECKING:
    from openai import APIStatusError
    from openai.types.chat import ChatCompletion

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"

_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
_NO_KEY = "none"
"""Sent when there is no key, because the client requires one; servers without keys accept any."""


class Completed(NamedTuple):
    """An answered call."""

    response: ChatCompletion
    """The response, as the `openai` package parses it."""
    answer: Answer
    """The record of the response."""


class Refused(Faulty):
    """The server refuses this request.

    Args:
        fault: The refusal.
        status: HTTP status, such as 400, 401, 404 or 422.
    """

    def __init__(self, fault: Fault, status: int) -> None:
        super().__init__(fault)
        self.status = status


class Sent(NamedTuple):
    """The raw response to a request."""

    content: bytes
    """The body."""
    parse: Callable[[], ChatCompletion]
    """Parses it with the `openai` package."""
    sampled: Sampled | None = None
    """Its sampled tokens; None for those that the document contains."""


class ChatModels(abc.ABC):
    """Models that answer OpenAI's chat API: their calls are counted and recorded. Must be closed.

    Args:
        name: Their name in messages and records.
        caller: Sends the requests, with the limits of the run.
        model: The model for calls that name none.
        is_only: Refuse calls that name another model.

    Raises:
        MissingExtra: The package `openai` is not installed.
    """

    def __init__(self, name: str, caller: Caller, *, model: str | None, is_only: bool = False) -> None:
        self.name, self.model = name, model
        self._caller, self._is_only = caller, is_only
        self._openai = need("openai", extra="openai")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the connections that this object opened."""

    @abc.abstractmethod
    async def _sent(self, wanted: dict[str, Any]) -> Sent:
        """Send a request once; raise `Faulty` for a failure."""

    @abc.abstractmethod
    def _faulty(self, kind: FaultKind, reason: str) -> Faulty:
        """Return the exception for a failure of the models."""

    async def complete(self, arguments: Mapping[str, Any]) -> Completed:
        """Call a model.

        Args:
            arguments: Arguments of `client.chat.completions.create`; the model may be missing.

        Raises:
            Faulty: The service failed.
            Refused: The service refuses this request.
            LimitReached: The run has reached a limit.
            RequestError: No model is named, or another one than the only allowed model.
            ValueError: A message or a tool is invalid, or an option is not JSON.
        """
        wanted = dict(arguments)
        if wanted.get("model") is None:
            if self.model is None:
                raise RequestError(f"no model at {self.name} is named", hint="--model NAME")
            wanted["model"] = self.model
        elif self._is_only and wanted["model"] != self.model:
            raise RequestError(
                f"the agent calls the model {wanted['model']!r}, but {self.model!r} is evaluated",
                hint="turn.chat(…) without model= calls the evaluated model",
            )
        wanted["messages"] = plain_messages(wanted["messages"])
        asked = _Asked(
            read_messages(wanted["messages"]),
            read_tools(wanted.get("tools")),
            request_options(wanted),
            {**wanted, **(wanted.get("extra_body") or {})},
        )
        done = await self._called(lambda: self._once(wanted, asked))
        answer = done.answer
        self._caller.budget.spend(
            n_input_tokens=answer.n_input_tokens,
            n_output_tokens=answer.n_output_tokens,
            cost_usd=answer.cost_usd,
        )
        return done

    async def _called(self, attempt: Callable[[], Awaitable[Completed]]) -> Completed:
        """Call an attempt, with retries."""
        return await self._caller.call(attempt)

    async def _once(self, wanted: dict[str, Any], asked: _Asked) -> Completed:
        inference_id, began = uuid7(), time.monotonic()
        sent = await self._sent(wanted)
        latency_s = time.monotonic() - began
        try:
            body = from_json(sent.content)
            said = _Completion.model_validate(body)
            completion = read_message({**said.choices[0].message, "role": "assistant"})
            completed = sent.parse()
        except (self._openai.APIError, ValueError, TypeError, KeyError) as error:
            raise self._faulty(FaultKind.UNREADABLE, _reason(error)) from None
        sampled = sent.sampled or read_sampled(asked.sent, body)
        return Completed(completed, self._answer(inference_id, said, completion, asked, latency_s, sampled))

    def _answer(
        self,
        inference_id: str,
        said: _Completion,
        completion: Message,
        asked: _Asked,
        latency_s: float,
        sampled: Sampled,
    ) -> Answer:
        usage, choice = said.usage or _Usage(), said.choices[0]
        extra: JsonObject = {"endpoint": self.name}
        if asked.options:
            extra["request"] = asked.options
        if said.id:
            extra["completion_id"] = said.id
        if said.system_fingerprint:
            extra["system_fingerprint"] = said.system_fingerprint
        if sampled.completion_token_ids is not None:
            extra |= sampled.extra(settings_of(asked.sent))
        return Answer(
            inference_id=inference_id,
            function_name=None,
            variant_name=None,
            input=None,
            raw=completion.text
            if any(isinstance(block, TextBlock) for block in completion.content)
            else None,
            n_input_tokens=usage.prompt_tokens,
            n_output_tokens=usage.completion_tokens,
            finish_reason=choice.finish_reason,
            latency_s=latency_s,
            started_at=time_of(inference_id),
            messages=asked.messages,
            completion=completion,
            tools=asked.tools,
            model_name=said.model,
            cost_usd=self._cost_usd(usage),
            cached=None,
            extra=extra,
            sampled=sampled,
        )

    def _cost_usd(self, usage: _Usage) -> float | None:
        """Return the server's reported cost (OpenRouter: in US dollars), or that by the run's prices."""
        prices = self._caller.budget.prices
        if usage.cost is not None or prices is None:
            return usage.cost
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        return prices.cost_usd(usage.prompt_tokens, usage.completion_tokens)


class Endpoint(ChatModels):
    """A server at an address, with a key and a default model. Must be closed.

    The key is removed from all messages of the server.

    Args:
        url: Address with its version, such as `https://api.openai.com/v1`.
        key: Its key; None for a server without keys.
        caller: Sends the requests, with the limits of the run.
        model: The model for calls that name none.
        is_only: Refuse calls that name another model.

    Raises:
        RequestError: The URL is invalid, or OpenAI's own and there is no key.
        MissingExtra: The package `openai` is not installed.
    """

    def __init__(
        self,
        url: str,
        key: SecretStr | None,
        caller: Caller,
        *,
        model: str | None = None,
        is_only: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(
                f"{shown(url)!r} is not the address of a model server", hint=f"such as {OPENAI_URL}"
            )
        if key is None and url.rstrip("/") == OPENAI_URL:
            raise RequestError(
                f"{OPENAI_URL} needs a key, and {KEY_VARIABLE} is not set",
                hint=f"set {KEY_VARIABLE}, or name another server with --model-url",
            )
        super().__init__(shown_url(url), caller, model=model, is_only=is_only)
        self._key, self._url = key, url
        self._client = self._openai.AsyncOpenAI(
            base_url=url,
            api_key=key.get_secret_value() if key else _NO_KEY,
            http_client=self._openai.DefaultAsyncHttpxClient(follow_redirects=False),  # prompts stay here
            max_retries=0,  # the caller retries
            timeout=caller.timeout_s,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _sent(self, wanted: dict[str, Any]) -> Sent:
        try:
            response = await self._client.chat.completions.with_raw_response.create(**wanted)
        except self._openai.APIStatusError as error:
            raise self._refusal(error, wanted["model"]) from None  # the cause holds the key, in its request
        except self._openai.APITimeoutError:
            raise Faulty(timed_out(self._caller.timeout_s)) from None
        except self._openai.APIConnectionError as error:
            raise self._faulty(FaultKind.CONNECTION, str(error.__cause__ or error)) from None
        except (self._openai.APIError, UnicodeDecodeError) as error:
            raise self._faulty(FaultKind.UNREADABLE, str(error)) from None
        return Sent(response.content, response.parse)

    def _refusal(self, error: APIStatusError, model: str) -> Faulty:
        """Return the fault for an HTTP status that is not a success."""
        status = error.status_code
        text = self._safe(said_in(error.body) or error.message)
        message = f"{self.name} answered {status}: {text}"
        if status in (401, 403):
            message += f"; {KEY_VARIABLE} {'is not set' if self._key is None else 'holds the key'}"
        elif status == 404:
            message += f"; check the model {model!r} and the address, including /v1"
        fault = fault_of_status(status, message, code=error.code, headers=error.response.headers)
        return Refused(fault, status) if fault.kind == FaultKind.REFUSED else Faulty(fault)

    def _faulty(self, kind: FaultKind, reason: str) -> Faulty:
        return Faulty(Fault(kind, f"{self.name}: {self._safe(reason)}"))

    def _safe(self, text: str) -> str:
        """The server's message, shortened, without the key that it may repeat."""
        return shown(hidden(text, self._key, self._url))


class _Asked(NamedTuple):
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...] | None
    options: JsonObject
    """Other fields of the request, such as the temperature."""
    sent: Mapping[str, Any]
    """The body of the request; it may hold secrets."""


_NO_OPTIONS = ("messages", "tools", "model", "timeout", "extra_headers", "extra_query", "extra_body")
"""Arguments that are recorded elsewhere, or may contain secrets."""


def request_options(arguments: Mapping[str, Any]) -> JsonObject:
    """Return the options of a request besides messages, tools and model, such as its temperature.

    Raises:
        ValueError: An option is not JSON.
    """
    return _OBJECT.validate_python({k: v for k, v in arguments.items() if k not in _NO_OPTIONS})


class _Wire(BaseModel):
    """JSON of another system: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _number_or_none(value: Any) -> Any:
    """Return a count; None when the value is not a number or is below 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < float("inf") else None


_Number = Annotated[int | None, BeforeValidator(_number_or_none)]


class _Usage(_Wire):
    prompt_tokens: _Number = None
    completion_tokens: _Number = None
    cost: Annotated[float | None, BeforeValidator(_number_or_none)] = None


class _ChatChoice(_Wire):
    message: dict[str, Any]
    finish_reason: str | None = None


class _Completion(_Wire):
    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    choices: tuple[_ChatChoice, ...] = Field(min_length=1)
    usage: _Usage | None = None


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
    return f"{type(error).__name__}: {error}"
