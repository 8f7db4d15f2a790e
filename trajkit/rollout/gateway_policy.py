"""A variant of a TensorZero function as a policy: an inference per step, feedback when an episode is over."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue

from trajkit._lazy import need
from trajkit.errors import RequestError, ServiceError
from trajkit.rollout.calling import Caller
from trajkit.rollout.faults import Faulty, fault_with_status, fault_without_status, shown
from trajkit.rollout.ids import time_of
from trajkit.rollout.plan import Plan
from trajkit.rollout.policies import Answer, Choice, Past, Situation
from trajkit.rollout.seeds import derived_seed
from trajkit.schema import Feedback, FeedbackKind, single_precision

INVALID_NOTE = "Note: your answer named no action, so this default was carried out."
"""Follows the action in the history where the agent's own answer was not one."""


class Gateway(Protocol):
    """The two calls that a policy makes; TensorZero's asynchronous client has them, embedded or over HTTP."""

    @property
    def inference(self) -> Callable[..., Awaitable[Any]]:
        """Ask a function for an answer."""
        ...

    @property
    def feedback(self) -> Callable[..., Awaitable[Any]]:
        """Log how it went."""
        ...


class Asked(NamedTuple):
    """A request that was answered."""

    response: Any
    latency_s: float
    """Seconds that the request took which was answered; not the wait for its turn."""


class GatewayPolicy:
    """Asks one variant of the gateway's function for every action.

    Args:
        gateway: An open gateway; closing it is the caller's business.
        plan: Seeds, history and tags.
        caller: Sends the requests, with the limits of the run.
        function_name: The function to call, of type json.
        variant_name: Its variant.
    """

    def __init__(
        self, gateway: Gateway, plan: Plan, caller: Caller, *, function_name: str, variant_name: str
    ) -> None:
        self.plan = plan
        self._caller = caller
        self.function_name = function_name
        self.variant_name = variant_name
        self._gateway = gateway

    async def act(self, situation: Situation) -> Choice:
        """One inference."""
        payload = request_input(situation, history=self.plan.history)
        arguments = {
            "function_name": self.function_name,
            "variant_name": self.variant_name,
            "episode_id": situation.episode_id,
            "input": payload,
            "tags": {**situation.tags, "trajkit.step": str(situation.step_index)},
            "params": {"chat_completion": {"seed": self._inference_seed(situation)}},
            "cache_options": {"enabled": "off"},  # a cached answer is not a sample
        }
        asked = await ask(self._caller, self._gateway.inference, arguments, is_paid=True)
        response = asked.response
        choice = _choice(response, self.function_name, payload, latency_s=asked.latency_s)
        self._caller.spent(
            n_input_tokens=response.usage.input_tokens,
            n_output_tokens=response.usage.output_tokens,
            cost_usd=response.usage.cost,
        )
        return choice

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log every metric of the episode."""
        logged = []
        for name, value in metrics.items():
            arguments = {"metric_name": name, "value": value, "episode_id": episode_id, "tags": dict(tags)}
            asked = await ask(self._caller, self._gateway.feedback, arguments, is_paid=False)
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

    def _inference_seed(self, situation: Situation) -> int:
        task, seed = situation.job.task, situation.job.seed
        return derived_seed("inference", self.plan.run_seed, task, seed, situation.step_index)


async def ask(
    caller: Caller, call: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any], *, is_paid: bool
) -> Asked:
    """Send a request to a gateway; again, after a while, when a service failed that may recover.

    Raises:
        Faulty: A service failed.
        RequestError: The gateway refuses the request itself.
        LimitReached: The run has used what it may.
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
                raise _refusal(error.status_code, text) from error
        except tensorzero.TensorZeroInternalError as error:
            fault = fault_without_status(str(error))
        raise Faulty(fault)

    return await caller.call(attempt, is_paid=is_paid)


def request_input(situation: Situation, *, history: int) -> dict[str, JsonValue]:
    """The input of one inference, in the shape in which the gateway stores it.

    With `history` 0 the argument is left out, for functions that do not know it; else it is always there,
    empty at the first step, so that a template may use it without asking.
    """
    arguments: dict[str, JsonValue] = {"observation": situation.observation}
    if history:
        arguments["history"] = history_text(situation.past, history)
    content: list[JsonValue] = [{"type": "template", "name": "user", "arguments": arguments}]
    return {"system": {"mission": situation.mission}, "messages": [{"role": "user", "content": content}]}


def history_text(past: Sequence[Past], n: int) -> str:
    """The latest `n` steps as text, oldest first; "" for none."""
    blocks = []
    for step in past[len(past) - min(n, len(past)) :]:
        lines = [f"Observation: {step.observation}", f"Action: {step.action_executed}"]
        blocks.append("\n".join(lines if step.action_valid else [*lines, INVALID_NOTE]))
    return "\n\n".join(blocks)


class _Read(NamedTuple):
    raw: str | None
    action: JsonValue


def _choice(response: Any, function_name: str, payload: JsonValue, *, latency_s: float) -> Choice:
    read = _read_json(response.output) if hasattr(response, "output") else _read_chat(response.content)
    inference_id = str(response.inference_id)
    answer = Answer(
        inference_id=inference_id,
        function_name=function_name,
        variant_name=response.variant_name,
        input=payload,
        raw=read.raw,
        n_input_tokens=response.usage.input_tokens,
        n_output_tokens=response.usage.output_tokens,
        finish_reason=None if response.finish_reason is None else str(response.finish_reason.value),
        latency_s=latency_s,
        started_at=time_of(inference_id),
        cost_usd=response.usage.cost,
    )
    return Choice(read.action, answer)


def _read_json(output: Any) -> _Read:
    """The answer of a json function; the gateway parses nothing that does not fit the schema."""
    parsed = output.parsed
    return _Read(output.raw, parsed.get("action") if isinstance(parsed, dict) else None)


def _read_chat(content: Any) -> _Read:
    """The answer of a chat function: a JSON object with `action`, or the action itself."""
    texts = [block.text for block in content if getattr(block, "text", None) is not None]
    if not texts:
        return _Read(None, None)
    raw = "\n".join(texts)
    try:
        parsed = json.loads(raw)
    except ValueError:
        return _Read(raw, raw.strip() or None)
    return _Read(raw, parsed.get("action") if isinstance(parsed, dict) else None)


def _error_text(body: str) -> str:
    """What the gateway says in `{"error": "…"}`; the body as it is when it says it otherwise."""
    try:
        said = json.loads(body)
    except ValueError:
        return body
    message = said.get("error") if isinstance(said, dict) else None
    return message if isinstance(message, str) else body


def _refusal(status: int, text: str) -> RequestError | ServiceError:
    message = f"the gateway refused the request ({status}): {shown(text)}"
    if status in (401, 403):
        return ServiceError(message, hint="TENSORZERO_API_KEY holds the gateway's key")
    return RequestError(
        message, hint="the function must take mission, observation and history (see --history)"
    )
