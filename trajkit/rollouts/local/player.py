"""A player with a local model: the model, its prompts, its sampling parameters and its policy."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue

from trajkit._core.samples import model_path
from trajkit.environments.base import ActionRule
from trajkit.errors import DataError, RequestError
from trajkit.models.generation.located import Located, fingerprint, located
from trajkit.rollouts.decoding import settings_of
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.own_prompt import JsonMode, OwnPrompts
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Choice, Scripted, Situation
from trajkit.rollouts.prompts.variant import Prompt, Prompts, Sampling, VariantOf, VariantPrompts
from trajkit.schema import Model
from trajkit.schema.base import JsonObject, Name

_NEW_TOKENS = 128


class LocalSettings(Model):
    """Settings of `--policy-set` with `--policy local`."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    """Sampling temperature, 0 for the most likely tokens; None for the variant's, or else 1."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Draw only from the likeliest tokens with this total probability; None for the variant's, or else 1."""
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum tokens per answer; None for the variant's, or else 128."""
    json_mode: JsonMode = JsonMode.AUTO
    """How the answer is constrained: auto follows the variant, or uses a schema with trajkit's prompt."""
    thinking: bool = False
    """Ask for a few sentences of reasoning before the action, in trajkit's own prompt."""


class LocalPlayer(Model):
    """A model that plays: on this machine, or for an agent also at a server."""

    name: Name
    """Name in the plan."""
    model: Name
    """A folder with a model or an adapter, an id, or `sample:tiny-base`; for a server, its name there."""
    base: Name | None = None
    """Base model of an adapter, where its settings do not name it."""
    called: Name | None = None
    """Name of the model in stores; None for `model`."""
    config: str | None = None
    """The `tensorzero.toml` with the prompts; None for trajkit's own prompt."""
    function: Name | None = None
    """Function of the prompts."""
    variant: Name | None = None
    """Variant of the prompts."""
    settings: dict[str, str] = {}
    """Sampling settings, as in `LocalSettings`."""

    @property
    def served_as(self) -> str:
        """Name of its model in stores and at a server."""
        return self.called or self.model

    @cached_property
    def drawn(self) -> LocalSettings:
        """The parsed settings.

        Raises:
            RequestError: A setting is unknown, or its value is invalid.
        """
        return settings_of("local", LocalSettings, self.settings)

    @property
    def templates(self) -> VariantOf | None:
        """The variant with the prompts; None for trajkit's own prompt.

        Raises:
            RequestError: Some of config, function and variant are set, but not all.
        """
        named = (self.config, self.function, self.variant)
        if not any(named):
            return None
        if self.config is None or self.function is None or self.variant is None:
            raise RequestError(
                f"the prompts of {self.name!r} need a configuration, a function and a variant",
                hint="--config tensorzero.toml --function NAME --variant NAME",
            )
        return VariantOf(Path(self.config), self.function, self.variant)

    @cached_property
    def found(self) -> Located:
        """The model, and its base model.

        Raises:
            RequestError: The folder is not a model, or the adapter does not name its base model.
        """
        return located(self.model, self.base)

    def prompts(self, rule: ActionRule | None, *, history: int) -> Prompts:
        """Return the writer of the prompts.

        Raises:
            RequestError: There is no such variant, or a setting has no effect with it.
            ConfigError: The configuration is invalid.
        """
        drawn, templates = self.drawn, self.templates
        if templates is None:
            return OwnPrompts(rule, history=history, mode=drawn.json_mode, thinking=drawn.thinking)
        if drawn.thinking:
            raise RequestError(
                "the setting thinking is for prompts that trajkit writes", hint="choose a variant that asks"
            )
        return VariantPrompts(templates, history=history, mode=drawn.json_mode)

    def sampling(self, prompts: Prompts) -> Sampling:
        """Return the sampling parameters: the player's settings, or else the variant's."""
        said = prompts.sampling if isinstance(prompts, VariantPrompts) else Sampling(None, None, None, ())
        drawn = self.drawn
        return Sampling(
            _first(drawn.temperature, said.temperature, 1.0),
            _first(drawn.top_p, said.top_p, 1.0),
            int(_first(drawn.max_new_tokens, said.max_tokens, _NEW_TOKENS)),
            said.stop,
        )

    @property
    def is_folder(self) -> bool:
        """Whether its model is a local folder, and not an id or a name at a server."""
        return Path(model_path(self.model)).is_dir()

    def identity(
        self, rule: ActionRule | None, *, history: int, is_here: bool = True
    ) -> dict[str, JsonValue]:
        """Return the values that identify a player: its weights, its prompts and its sampling."""
        return {
            **self.model_identity(is_here=is_here),
            "prompts": self.prompts(rule, history=history).digest,
            "settings": dict(self.settings),
        }

    def model_identity(self, *, is_here: bool = True) -> dict[str, JsonValue]:
        """Return the values that identify its model: its name, and the weights of a local model."""
        named: dict[str, JsonValue] = {"name": self.name, "model": self.served_as}
        if not is_here:
            return {**named, "model": self.model}
        found = self.found
        return {
            **named,
            "weights": [fingerprint(found.model), *([fingerprint(found.base)] if found.base else [])],
        }


def _first(*values: float | None) -> float:
    """Return the first value that is set; the last one always is."""
    return next(value for value in values if value is not None)


class PlayerPolicy(Scripted, abc.ABC):
    """The policy of one player.

    Args:
        player: Its model, prompts and settings.
        plan: Seeds, history and decodings.
        rule: The environment's rule for answers; None when the legal actions depend on the state.

    Raises:
        RequestError: The prompts or a setting are invalid.
        ConfigError: The configuration is invalid.
    """

    def __init__(self, player: LocalPlayer, plan: Plan, rule: ActionRule | None) -> None:
        self.player = player
        self.prompts: Prompts = player.prompts(rule, history=plan.history)
        self._plan = plan
        self._sampling = player.sampling(self.prompts)

    @abc.abstractmethod
    async def answer(self, situation: Situation, prompt: Prompt) -> Answer:
        """Return the model's answer to a prompt, with its completion.

        Raises:
            Faulty: The model failed, or refuses the request.
        """

    async def act(self, situation: Situation) -> Choice:
        """Return the model's action."""
        try:
            prompt = self.prompts.of(situation)
        except DataError as error:
            raise Faulty(Fault(FaultKind.REFUSED, shown(error.message), is_lasting=True)) from error
        answer = await self.answer(situation, prompt)
        assert answer.completion is not None
        return Choice(prompt.action(answer.completion), answer)

    def sampling(self, situation: Situation) -> Sampling:
        """Return the sampling of this answer: the plan's if it is fixed, otherwise the player's."""
        fixed = self._plan.decoding(situation.job)
        sampling = self._sampling
        if fixed.temperature is not None:
            sampling = sampling._replace(temperature=fixed.temperature)
        return sampling if fixed.top_p is None else sampling._replace(top_p=fixed.top_p)

    def seed(self, situation: Situation) -> int:
        """Return the seed of this answer."""
        return self._plan.inference_seed(situation.job, situation.step_index)


def as_tool(tool: JsonObject) -> Mapping[str, object]:
    """Return a tool of the store in OpenAI's form."""
    return {"type": "function", "function": tool}
