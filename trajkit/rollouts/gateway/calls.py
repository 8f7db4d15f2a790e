"""Send requests to a TensorZero gateway, retry transient failures, and record the answers."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue, TypeAdapter

from trajkit._core.ids import time_of
from trajkit._core.lazy import need
from trajkit.errors import RequestError, ServiceError
from trajkit.rollouts.faults import Faulty, fault_with_status, fault_without_status, shown
from trajkit.rollouts.policies import Answer
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import (
    Block,
    Feedback,
    FeedbackKind,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    UnknownBlock,
    single_precision,
)
from trajkit.schema.base import Json

_NO_REQUEST = "Failed to deserialize JSON to "
"""Start of the client's message for an argument of the wrong shape; then no request was sent."""

_JSON: TypeAdapter[JsonValue] = TypeAdapter(Json)


class Gateway(Protocol):
    """The two calls that a policy makes; TensorZero's asynchronous client has them, embedded or over HTTP."""

    @property
    def inference(self) -> Callable[..., Awaitable[Any]]:
        """Call a function."""
        ...

    @property
    def feedback(self) -> Callable[..., Awaitable[Any]]:
        """Send feedback."""
        ...


class Asked(NamedTuple):
    """An answered request."""

    response: Any
    latency_s: float
    """Seconds of the request that was answered, without the wait for its turn."""


class Inferred(NamedTuple):
    """One inference."""

    response: Any
    """The response, as the gateway's client parses it."""
    answer: Answer
    """The record of the response."""


class NotTaken(RequestError):
    """The gateway refuses the request itself, such as an unknown function or an input that fits no schema."""


class GatewayCalls:
    """Calls of an open gateway, within the limits of a run.

    Args:
        gateway: The open gateway; the caller closes it.
        caller: Sends the requests.
        hint: Hint for a request that the gateway itself refuses.
    """

    def __init__(self, gateway: Gateway, caller: Caller, *, hint: str) -> None:
        self._gateway = gateway
        self._caller = caller
        self._hint = hint

    async def infer(self, arguments: Mapping[str, Any]) -> Inferred:
        """Make an inference.

        Args:
            arguments: Arguments of the client's `inference`; the input is JSON.

        Raises:
            Faulty: A service failed.
            NotTaken: The gateway refuses the request itself.
            ServiceError: The gateway requires another key.
            LimitReached: The run has reached a limit.
            ValueError: The input is not JSON.
        """
        payload = as_stored(arguments["input"])
        asked = await ask(self._caller, self._gateway.inference, arguments, is_paid=True, hint=self._hint)
        is_cached = dict(arguments.get("cache_options") or {}).get("enabled", "off") != "off"
        answer = _answer(asked, arguments["function_name"], payload, is_cached=is_cached)
        self._caller.budget.spend(
            n_input_tokens=answer.n_input_tokens,
            n_output_tokens=answer.n_output_tokens,
            cost_usd=answer.cost_usd,
        )
        return Inferred(asked.response, answer)

    async def log(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log every metric of an episode.

        Raises:
            Faulty: A metric could not be logged.
            NotTaken: The gateway refuses a metric.
        """
        logged = []
        for name, value in metrics.items():
            arguments = {"metric_name": name, "value": value, "episode_id": episode_id, "tags": dict(tags)}
            asked = await ask(self._caller, self._gateway.feedback, arguments, is_paid=False, hint=self._hint)
            feedback_id = str(asked.response.feedback_id)
            logged.append(
                Feedback(
                    feedback_id=feedback_id,
                    episode_id=episode_id,
                    kind=FeedbackKind.FLOAT,
                    metric_name=name,
                    value=single_precision(value),
                    tags=dict(tags),
                    created_at=time_of(feedback_id),
                )
            )
        return tuple(logged)


async def ask(
    caller: Caller,
    call: Callable[..., Awaitable[Any]],
    arguments: Mapping[str, Any],
    *,
    is_paid: bool,
    hint: str | None = None,
) -> Asked:
    """Send a request to a gateway, with retries after passing failures.

    Args:
        caller: Sends it.
        call: One of the gateway's calls.
        arguments: Arguments of the call.
        is_paid: Whether it calls a model.
        hint: Hint for a request that the gateway itself refuses.

    Raises:
        Faulty: A service failed.
        NotTaken: The gateway refuses the request itself.
        ServiceError: The gateway requires another key.
        LimitReached: The run has reached a limit.
    """
    tensorzero = need("tensorzero", extra="tensorzero")

    async def attempt() -> Asked:
        began = time.monotonic()
        try:
            return Asked(await call(**arguments), time.monotonic() - began)
        except tensorzero.TensorZeroError as error:
            text = _error_text(error.text or "")
            fault = fault_with_status(error.status_code, text)
            if fault is None:
                raise _refusal(error.status_code, text, hint) from error
        except tensorzero.TensorZeroInternalError as error:
            text = str(error)
            if text.startswith(_NO_REQUEST):
                raise NotTaken(f"invalid request: {shown(text)}", hint=hint) from error
            fault = fault_without_status(text)
        raise Faulty(fault)

    return await caller.call(attempt, is_paid=is_paid)


def _error_text(body: str) -> str:
    """Return the message in the gateway's `{"error": "…"}`; the whole body when it has another form."""
    try:
        said = json.loads(body)
    except ValueError:
        return body
    message = said.get("error") if isinstance(said, dict) else None
    return message if isinstance(message, str) else body


def _refusal(status: int, text: str, hint: str | None) -> NotTaken | ServiceError:
    message = f"the gateway refused the request ({status}): {shown(text)}"
    if status in (401, 403):
        return ServiceError(message, hint="TENSORZERO_API_KEY holds the gateway's key")
    return NotTaken(message, hint=hint)


def as_stored(payload: Any) -> JsonValue:
    """Return the input of an inference in the gateway's stored form, where content is a list of blocks.

    Raises:
        ValueError: It is not JSON.
    """
    value = _JSON.validate_python(payload)
    if not isinstance(value, dict) or not isinstance(messages := value.get("messages"), list):
        return value
    return {**value, "messages": [_with_blocks(message) for message in messages]}


def _with_blocks(message: JsonValue) -> JsonValue:
    if isinstance(message, dict) and isinstance(text := message.get("content"), str):
        return {**message, "content": [{"type": "text", "text": text}]}
    return message


def _answer(asked: Asked, function_name: str, payload: JsonValue, *, is_cached: bool) -> Answer:
    response = asked.response
    inference_id = str(response.inference_id)
    if hasattr(response, "output"):
        raw = response.output.raw
        blocks: list[Block] = [] if raw is None else [TextBlock(text=raw)]
    else:
        blocks = [_block(block) for block in response.content]
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        raw = "\n".join(texts) if texts else None
    usage = response.usage
    return Answer(
        inference_id=inference_id,
        function_name=function_name,
        variant_name=response.variant_name,
        input=payload,
        raw=raw,
        n_input_tokens=usage.input_tokens,
        n_output_tokens=usage.output_tokens,
        finish_reason=None if response.finish_reason is None else str(response.finish_reason.value),
        latency_s=asked.latency_s,
        started_at=time_of(inference_id),
        completion=Message(role=Role.ASSISTANT, content=tuple(blocks)),
        cost_usd=usage.cost,
        cached=None if is_cached else False,
    )


def _block(block: Any) -> Block:
    """Convert a block of a chat function's answer to the form of an export."""
    match block.type:
        case "text":
            return TextBlock(text=block.text)
        case "tool_call":
            return ToolCallBlock(id=block.id, name=block.raw_name, arguments=block.raw_arguments)
        case "thought":
            summary = None if block.summary is None else tuple(map(dataclasses.asdict, block.summary))
            return ThoughtBlock(
                text=block.text, signature=block.signature, summary=summary, provider_type=block.provider_type
            )
        case "unknown":
            return UnknownBlock(
                data=block.data, model_name=block.model_name, provider_name=block.provider_name
            )
        case _:
            return UnknownBlock(data=_JSON.validate_python(dataclasses.asdict(block)))
