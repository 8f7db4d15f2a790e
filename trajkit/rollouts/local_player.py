"""A player with a model of this machine: the model, its prompts, and its sampling parameters."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue

from trajkit.environments.base import ActionRule
from trajkit.errors import RequestError
from trajkit.models.generation.located import Located, fingerprint, located
from trajkit.rollouts.own_prompt import JsonMode, OwnPrompts
from trajkit.rollouts.policy_settings import settings_of
from trajkit.rollouts.prompt import Prompts
from trajkit.rollouts.variant_prompts import Sampling, VariantOf, VariantPrompts
from trajkit.schema import Model
from trajkit.schema.base import Name

_NEW_TOKENS = 128


class LocalSettings(Model):
    """What `--policy-set` takes with `--policy local`."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    """Spread of the answers, 0 for the likeliest; None for what the variant says, else 1."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the likeliest tokens that are drawn from; None for what the variant says, else 1."""
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer, in tokens; None for what the variant says, else 128."""
    json_mode: JsonMode = JsonMode.AUTO
    """How the model is held to an answer that can be read: auto as the variant says, and by a schema where
    trajkit writes the prompt."""
    thinking: bool = False
    """Ask for a few sentences of reasoning before the action, where trajkit writes the prompt."""


class LocalPlayer(Model):
    """A model as one of those that play: of this machine, or with an agent also one at a server."""

    name: Name
    """What it is called in the plan."""
    model: Name
    """A folder with a model or an adapter, the id of one, or `sample:tiny-base`; its name at a server."""
    base: Name | None = None
    """What an adapter belongs to, where it does not say so itself."""
    called: Name | None = None
    """What the model is called in stores; None for `model`."""
    config: str | None = None
    """The `tensorzero.toml` with the prompts; None for those that trajkit writes itself."""
    function: Name | None = None
    """The function that they are of."""
    variant: Name | None = None
    """The variant that they are of."""
    settings: dict[str, str] = {}
    """How answers are drawn, as in `LocalSettings`."""

    @cached_property
    def drawn(self) -> LocalSettings:
        """The settings.

        Raises:
            RequestError: One is not known, or its value cannot be.
        """
        return settings_of("local", LocalSettings, self.settings)

    @property
    def templates(self) -> VariantOf | None:
        """Whose prompts are written; None for those of trajkit.

        Raises:
            RequestError: Some of the three are named, and not all.
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
        """The model, and what it is an adapter to.

        Raises:
            RequestError: The folder is no model, or the adapter does not say what it belongs to.
        """
        return located(self.model, self.base)

    def prompts(self, rule: ActionRule | None, *, history: int) -> Prompts:
        """What writes its prompts.

        Raises:
            RequestError: There is no such variant, or a setting has no use with it.
            ConfigError: The configuration cannot be used.
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
        """How its answers are drawn: as it is set, else as the variant says."""
        said = prompts.sampling if isinstance(prompts, VariantPrompts) else Sampling(None, None, None, ())
        drawn = self.drawn
        return Sampling(
            _first(drawn.temperature, said.temperature, 1.0),
            _first(drawn.top_p, said.top_p, 1.0),
            int(_first(drawn.max_new_tokens, said.max_tokens, _NEW_TOKENS)),
            said.stop,
        )

    def identity(self, rule: ActionRule | None, *, history: int) -> dict[str, JsonValue]:
        """The values that identify a player: its weights, its prompts and its sampling."""
        return {
            **self.model_identity(),
            "prompts": self.prompts(rule, history=history).digest,
            "settings": dict(self.settings),
        }

    def model_identity(self, *, is_here: bool = True) -> dict[str, JsonValue]:
        """The values that identify its model: the name, and the weights of a model of this machine."""
        named: dict[str, JsonValue] = {"name": self.name, "model": self.called or self.model}
        if not is_here:
            return {**named, "model": self.model}
        found = self.found
        return {
            **named,
            "weights": [fingerprint(found.model), *([fingerprint(found.base)] if found.base else [])],
        }


def _first(*values: float | None) -> float:
    """The first value that is set; the last one always is."""
    return next(value for value in values if value is not None)
