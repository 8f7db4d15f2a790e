"""Use a variant of a TensorZero function as a policy: one inference per step, feedback after each episode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue, TypeAdapter

from trajkit.rollouts.gateway.calls import Gateway, GatewayCalls, Inferred
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Choice, Past, Situation
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Feedback, Message, ToolCallBlock
from trajkit.schema.base import Json

INVALID_NOTE = "Note: your answer named no action, so this default was carried out."
"""Follows the action in the history where the agent's own answer was not a valid action."""


_HINT = "the function must take mission, observation and history (see --history)"
_JSON: TypeAdapter[JsonValue] = TypeAdapter(Json)


class GatewayPolicy:
    """Calls one variant of the gateway's function for every action.

    Args:
        gateway: An open gateway; the caller closes it.
        plan: Seeds, history and tags.
        caller: Sends the requests, with the limits of the run.
        function_name: The function to call, of type json.
        variant_name: Its variant.
    """

    def __init__(
        self, gateway: Gateway, plan: Plan, caller: Caller, *, function_name: str, variant_name: str
    ) -> None:
        self.plan = plan
        self.function_name = function_name
        self.variant_name = variant_name
        self._calls = GatewayCalls(gateway, caller, hint=_HINT)

    async def act(self, situation: Situation) -> Choice:
        """Make one inference."""
        inferred = await self._calls.infer(
            {
                "function_name": self.function_name,
                "variant_name": self.variant_name,
                "episode_id": situation.episode_id,
                "input": request_input(situation, history=self.plan.history),
                "tags": {**situation.tags, "trajkit.step": str(situation.step_index)},
                "params": {"chat_completion": self._parameters(situation)},
                "cache_options": {"enabled": "off"},  # a cached answer is not a sample
            }
        )
        return Choice(_action(inferred), inferred.answer)

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log every metric of the episode."""
        return await self._calls.log(episode_id, metrics, tags)

    def _parameters(self, situation: Situation) -> dict[str, JsonValue]:
        seed = self.plan.inference_seed(situation.job, situation.step_index)
        return {"seed": seed, **self.plan.decoding(situation.job).parameters}


def request_input(situation: Situation, *, history: int) -> dict[str, JsonValue]:
    """Return the input of one inference in the gateway's stored form.

    With `history` 0 the argument is left out, for functions that do not have it. Otherwise it is always
    there, and empty at the first step, so that a template need not test for it.
    """
    arguments: dict[str, JsonValue] = {"observation": situation.observation}
    if history:
        arguments["history"] = history_text(situation.past, history)
    content: list[JsonValue] = [{"type": "template", "name": "user", "arguments": arguments}]
    return {"system": {"mission": situation.mission}, "messages": [{"role": "user", "content": content}]}


def history_text(past: Sequence[Past], n: int) -> str:
    """Return the latest `n` steps as text, oldest first; "" for none."""
    blocks = []
    for step in past[len(past) - min(n, len(past)) :]:
        lines = [f"Observation: {step.observation}", f"Action: {step.action_executed}"]
        blocks.append("\n".join(lines if step.action_valid else [*lines, INVALID_NOTE]))
    return "\n\n".join(blocks)


def _action(inferred: Inferred) -> JsonValue:
    """Return the field `action` of the answer; for a chat function, its tool call's argument or its text.

    For a json function, the gateway parses only answers that fit the schema.
    """
    if hasattr(inferred.response, "output"):
        parsed = inferred.response.output.parsed
    else:
        raw = inferred.answer.raw or ""
        completion = inferred.answer.completion
        if completion is not None and (called := called_action(completion)) is not None:
            return called
        try:
            parsed = _JSON.validate_python(json.loads(raw))
        except ValueError:
            return raw.strip() or None
    return parsed.get("action") if isinstance(parsed, dict) else None


def called_action(answer: Message) -> JsonValue:
    """Return the argument `action` of the first tool call; None when there is none.

    If the tool has a single argument with another name, return that argument.
    """
    for block in answer.content:
        if isinstance(block, ToolCallBlock):
            try:
                arguments = json.loads(block.arguments)
            except ValueError:
                return None
            if not isinstance(arguments, dict):
                return None
            only = next(iter(arguments.values())) if len(arguments) == 1 else None
            action: JsonValue = arguments.get("action", only)
            return action
    return None
