"""Any OpenAI-compatible model as a policy, with a prompt of trajkit's own: `docs/agents.md` has its words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import Field, JsonValue, SecretStr, TypeAdapter, ValidationError

from trajkit.environments.base import ActionRule
from trajkit.errors import RequestError
from trajkit.rollout.calling import Caller
from trajkit.rollout.endpoint import Endpoint, Refused
from trajkit.rollout.gateway_policy import history_text
from trajkit.rollout.plan import Plan
from trajkit.rollout.policies import Choice, Scripted, Situation
from trajkit.rollout.seeds import derived_seed
from trajkit.schema import Model
from trajkit.schema.base import Json

MOST_LISTED = 500
"""With more actions the prompt lists none, and the schema allows any text: servers set such a limit."""


class JsonMode(StrEnum):
    """How the model is held to an answer that can be read."""

    AUTO = "auto"
    """By a schema; by less, once the server refuses that."""
    SCHEMA = "schema"
    """By a JSON schema that lists the actions."""
    OBJECT = "object"
    """By `{"type": "json_object"}`: some JSON object."""
    OFF = "off"
    """By the prompt alone; the answer is the action itself."""


class EndpointSettings(Model):
    """What `--policy-set` takes with `--policy openai`."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    """Spread of the answers; None leaves it to the server."""
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    """Longest answer, in tokens."""
    json_mode: JsonMode = JsonMode.AUTO
    """How the model is held to an answer that can be read."""
    thinking: bool = False
    """Ask for a few sentences of reasoning before the action."""


def read_settings(settings: Mapping[str, str]) -> EndpointSettings:
    """The settings from their texts.

    Raises:
        RequestError: One is not known, or its value cannot be.
    """
    try:
        return EndpointSettings.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if name not in EndpointSettings.model_fields:
            known = ", ".join(EndpointSettings.model_fields)
            raise RequestError(
                f"the policy openai has no setting {name!r}", hint=f"it has {known}"
            ) from error
        raise RequestError(f"the setting {name}={settings[name]!r}: {first['msg']}") from error


class EndpointPolicy(Scripted):
    """Asks one model for every action. Keeps nothing between steps; must be closed.

    Args:
        url: Address of the server with its version, such as `https://api.openai.com/v1`.
        model: The model's name there.
        key: The server's key; None for one that wants none.
        plan: Seeds and history.
        caller: Sends the requests, with the limits of the run.
        rule: The environment's rule for answers; None when what may be done depends on the state.
        settings: Sampling, and the shape of the answer.

    Raises:
        RequestError: The URL is none, or OpenAI's own and there is no key.
        MissingExtra: The package `openai` is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: SecretStr | None,
        plan: Plan,
        caller: Caller,
        *,
        rule: ActionRule | None = None,
        settings: EndpointSettings | None = None,
    ) -> None:
        self._endpoint = Endpoint(url, key, caller, model=model)
        self._plan = plan
        self._rule = rule
        self.settings = settings or EndpointSettings()
        self._dialect = _Dialect(self.settings.json_mode)

    async def act(self, situation: Situation) -> Choice:
        """One call of the model; a second one when the server refuses the way in which the first was put."""
        actions = self._rule.actions if self._rule else situation.environment.legal_actions()
        listed = actions if len(actions) <= MOST_LISTED else ()
        question = _Question(
            situation, listed, self._rule is not None, self._plan.history, self.settings.thinking
        )
        while True:
            dialect = self._dialect
            try:
                done = await self._endpoint.complete(self._arguments(question, dialect))
            except Refused as refusal:
                if dialect == self._dialect:  # else another episode has learned it meanwhile
                    if (plainer := dialect.without(refusal)) is None:
                        raise
                    self._dialect = plainer
                continue
            return Choice(read_action(done.answer.raw, listed, dialect.json_mode), done.answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _arguments(self, question: _Question, dialect: _Dialect) -> dict[str, Any]:
        situation, settings = question.situation, self.settings
        arguments: dict[str, Any] = {
            "messages": question.messages(is_json=dialect.json_mode != JsonMode.OFF),
            dialect.limit_name: settings.max_tokens,
        }
        if settings.temperature is not None:
            arguments["temperature"] = settings.temperature
        if dialect.sends_seed:
            job = situation.job
            arguments["seed"] = derived_seed(
                "inference", self._plan.run_seed, job.task, job.seed, situation.step_index
            )
        if (response_format := question.response_format(dialect.json_mode)) is not None:
            arguments["response_format"] = response_format
        return arguments


class _Dialect(NamedTuple):
    """What the server takes, as far as it was found out."""

    wanted: JsonMode
    refused: frozenset[JsonMode] = frozenset()
    limit_name: str = "max_tokens"
    sends_seed: bool = True

    @property
    def json_mode(self) -> JsonMode:
        """The mode to use now."""
        if self.wanted != JsonMode.AUTO:
            return self.wanted
        return next(mode for mode in _MODES if mode not in self.refused)

    def without(self, refusal: Refused) -> _Dialect | None:
        """What to try after a refusal; None when it was about something else."""
        if refusal.status not in (400, 422, 501):
            return None
        text, mode = refusal.fault.message.lower(), self.json_mode
        if self.limit_name == "max_tokens" and "max_completion_tokens" in text:
            return self._replace(limit_name="max_completion_tokens")
        if self.wanted == JsonMode.AUTO and mode != JsonMode.OFF and _SAYS_FORMAT.search(text):
            return self._replace(refused=self.refused | {mode})
        if self.sends_seed and _SAYS_SEED.search(text):
            return self._replace(sends_seed=False)
        return None


_MODES = (JsonMode.SCHEMA, JsonMode.OBJECT, JsonMode.OFF)
_SAYS_FORMAT = re.compile(r"response.?format|json.?schema|json.?object|structured|grammar|guided")
_SAYS_SEED = re.compile(r"\bseed\b")


class _Question(NamedTuple):
    """What the model is asked at one step."""

    situation: Situation
    actions: tuple[str, ...]
    """The actions to choose from; none when any text may be one."""
    is_fixed: bool
    """The actions are the same at every step."""
    history: int
    thinking: bool

    def messages(self, *, is_json: bool) -> list[dict[str, str]]:
        """The prompt."""
        system = [
            f"You act in a world that is shown to you as text. Your mission: {self.situation.mission}",
            "You choose one action at a time, and then see what it brought about.",
        ]
        user = []
        if past := history_text(self.situation.past, self.history):
            user.append(f"History:\n{past}")
        user.append(f"Observation:\n{self.situation.observation}")
        if self.actions:
            (system if self.is_fixed else user).append(_listed(self.actions))
        user.append(self._wanted(is_json))
        return [
            {"role": "system", "content": "\n\n".join(system)},
            {"role": "user", "content": "\n\n".join(user)},
        ]

    def _wanted(self, is_json: bool) -> str:
        which = "exactly one of the actions listed" if self.actions else "the action"
        if not is_json:
            return f"Answer with {which}, and nothing else."
        example = {"thinking": "…"} if self.thinking else {}
        shape = json.dumps({**example, "action": "…"}, ensure_ascii=False)
        reason = ' First reason in "thinking", in a few sentences.' if self.thinking else ""
        return f'Answer with one JSON object and nothing else: {shape}.{reason} "action" is {which}.'

    def response_format(self, mode: JsonMode) -> dict[str, JsonValue] | None:
        """What the server is told of the answer's shape."""
        if mode == JsonMode.OBJECT:
            return {"type": "json_object"}
        if mode == JsonMode.OFF:
            return None
        action: dict[str, JsonValue] = {"type": "string"}
        if self.actions:
            action["enum"] = list(self.actions)
        thinking: dict[str, JsonValue] = {"thinking": {"type": "string"}} if self.thinking else {}
        properties: dict[str, JsonValue] = {**thinking, "action": action}
        schema: dict[str, JsonValue] = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}


def _listed(actions: Sequence[str]) -> str:
    return "\n".join(["The actions:", *(f"- {action}" for action in actions)])


_JSON: TypeAdapter[JsonValue] = TypeAdapter(Json)
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


def read_action(raw: str | None, actions: Sequence[str], mode: JsonMode) -> JsonValue:
    """The action that an answer names; None when it names none.

    Args:
        raw: The answer's text; None when there is none.
        actions: The actions that were listed; none when any text may be one.
        mode: What the model was asked for. Only where it was not JSON is any text an action.
    """
    text = (raw or "").strip()
    found = _json(text)
    if isinstance(found, dict):
        return found.get("action")
    for said in (text, found):
        if isinstance(said, str) and said in actions:
            return said
    return text or None if mode == JsonMode.OFF else None


def _json(text: str) -> JsonValue:
    """The JSON that a text is, or that it holds in its first fence; None when there is none."""
    fenced = _FENCED.search(text)
    for candidate in (text, fenced[1] if fenced else ""):
        try:
            return _JSON.validate_json(candidate)
        except ValidationError:
            continue
    return None
