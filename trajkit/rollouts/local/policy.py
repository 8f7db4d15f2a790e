"""Use local models as policies: waiting episodes are answered in one batch, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from trajkit._core.ids import time_of, uuid7
from trajkit.environments.base import ActionRule
from trajkit.formats.chat.message import read_messages
from trajkit.formats.tokens.sampled import Sampled
from trajkit.models.generation.ask import Ask, AskError, Said
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.local.lockstep import LockStep
from trajkit.rollouts.local.player import LocalPlayer, PlayerPolicy, as_tool
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Situation
from trajkit.rollouts.prompts.variant import Prompt
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Block, Message, Role, TextBlock, ToolCallBlock
from trajkit.schema.base import JsonObject


class Line(NamedTuple):
    """A request and its model."""

    model: LocalModel
    ask: Ask


Answering = Callable[[LocalModel, Sequence[Ask]], Sequence[Said | Exception]]
"""Answers a batch of one model, in order; a failed request has an exception in place of its answer."""


class LocalModels:
    """The models of the players, with one queue for batches.

    Args:
        models: The model of each player, by the player's name.
        answer: Answers a batch; None for this machine.
    """

    def __init__(self, models: Mapping[str, LocalModel], answer: Answering | None = None) -> None:
        self._models = dict(models)
        self._lock_step: LockStep[Line, Said] = LockStep(partial(answered, answer=answer or _generated))

    @classmethod
    def open(cls, players: Sequence[LocalPlayer]) -> LocalModels:
        """Load the models of some players, each base once.

        Raises:
            RequestError: A model cannot be loaded.
            MissingExtra: torch, transformers or peft is not installed.
        """
        by_base: dict[str, list[LocalPlayer]] = {}
        for player in players:
            by_base.setdefault(_base(player), []).append(player)
        models: dict[str, LocalModel] = {}
        for base, its in by_base.items():
            adapters = {player.model: player.model for player in its if player.found.is_adapter}
            model = LocalModel.open(base, adapters=adapters)
            models |= {player.name: model for player in its}
        return cls(models)

    async def ask(self, player: LocalPlayer, ask: Ask) -> Said:
        """Return the answer of a player's model.

        Raises:
            AskError: The model cannot answer this request.
            Faulty: The model failed.
        """
        try:
            return await self._lock_step.ask(Line(self._models[player.name], ask))
        except RuntimeError as error:  # errors of torch, such as out of memory
            model = player.served_as
            failed = f"the model {model} failed: {error}; a smaller --concurrency takes less memory"
            raise Faulty(Fault(FaultKind.SERVER, shown(failed), is_lasting=True)) from error

    def voice(self, player: LocalPlayer) -> Voice:
        """Return the model or adapter of a player."""
        return self._models[player.name].voice(player.found.model)

    async def end(self) -> None:
        """End the generation thread; the models stay loaded."""
        await self._lock_step.close()

    async def close(self) -> None:
        """Release the models."""
        await self.end()
        for model in {id(model): model for model in self._models.values()}.values():
            model.close()


def _base(player: LocalPlayer) -> str:
    found = player.found
    return found.base if found.is_adapter and found.base is not None else found.model


def answered(lines: Sequence[Line], answer: Answering) -> list[Said | Exception]:
    """The answers, one batch per model; an invalid request does not affect the others."""
    said: dict[int, Said | Exception] = {}
    by_model: dict[int, list[int]] = {}
    for place, line in enumerate(lines):
        by_model.setdefault(id(line.model), []).append(place)
    for places in by_model.values():
        model = lines[places[0]].model
        said |= zip(places, answer(model, [lines[place].ask for place in places]), strict=True)
    return [said[place] for place in range(len(lines))]


def _generated(model: LocalModel, asks: Sequence[Ask]) -> Sequence[Said | Exception]:
    try:
        return generate(model, asks)
    except AskError as error:
        if len(asks) == 1:
            return [error]
        return [one for ask in asks for one in _generated(model, [ask])]


class LocalPolicy(PlayerPolicy):
    """The policy of one player, whose model is in this process.

    Args:
        player: Its model, prompts and settings.
        models: The models of all players; the caller closes them.
        plan: Seeds, history and decodings.
        caller: Counts the calls, with the limits of the run.
        rule: The environment's rule for answers; None when the legal actions depend on the state.

    Raises:
        RequestError: The prompts or a setting are invalid.
        ConfigError: The configuration is invalid.
    """

    def __init__(
        self,
        player: LocalPlayer,
        models: LocalModels,
        plan: Plan,
        caller: Caller,
        *,
        rule: ActionRule | None,
    ) -> None:
        super().__init__(player, plan, rule)
        self._models, self._caller = models, caller
        self._called = player.served_as

    async def answer(self, situation: Situation, prompt: Prompt) -> Answer:
        """Return the model's answer."""
        ask = self._ask(situation, prompt)
        budget = self._caller.budget
        budget.begin_call()
        try:  # no timeout: no other server could answer
            answer = await self._once(ask, prompt)
        finally:
            budget.end_call()
        self._caller.budget.spend(
            n_input_tokens=answer.n_input_tokens, n_output_tokens=answer.n_output_tokens
        )
        return answer

    def _ask(self, situation: Situation, prompt: Prompt) -> Ask:
        sampling = self.sampling(situation)
        return Ask(
            messages=prompt.messages,
            model=self.player.found.model,
            max_new_tokens=sampling.max_tokens or 0,
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            seed=self.seed(situation),
            json_schema=prompt.json_schema,
            tools=None if prompt.tools is None else [as_tool(tool) for tool in prompt.tools],
            tool_choice=prompt.tool_choice,
            stop=sampling.stop,
        )

    async def _once(self, ask: Ask, prompt: Prompt) -> Answer:
        inference_id, began = uuid7(), time.monotonic()
        try:
            said = await self._models.ask(self.player, ask)
        except AskError as error:
            raise Faulty(Fault(FaultKind.REFUSED, shown(error.message), is_lasting=True)) from error
        completion = _message(said)
        settings: JsonObject = {
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "max_new_tokens": ask.max_new_tokens,
            "seed": ask.seed,
        }
        if ask.stop:
            settings["stop"] = list(ask.stop)
        sampled = said.sampled or Sampled()
        extra = sampled.extra(settings)
        if sampled.is_masked:
            extra["request"] = _held_to(ask)
        if self.prompts.variant_name not in (None, self.player.name):
            extra["prompt_variant"] = self.prompts.variant_name
        return Answer(
            inference_id=inference_id,
            function_name=self.prompts.function_name,
            variant_name=self.player.name,
            input=prompt.input,
            raw=said.text or None,
            n_input_tokens=said.n_input_tokens,
            n_output_tokens=said.n_output_tokens,
            finish_reason=said.finish_reason,
            latency_s=time.monotonic() - began,
            started_at=time_of(inference_id),
            messages=read_messages(prompt.messages),
            completion=completion,
            tools=prompt.tools,
            model_name=self._called,
            cached=None,
            extra=extra,
            sampled=said.sampled,
        )


def _held_to(ask: Ask) -> JsonObject:
    """Return the constraints of the answer besides its tools, in the form of a request to a server."""
    held: JsonObject = {}
    if ask.json_schema is not None:
        schema: JsonObject = {"name": "answer", "schema": dict(ask.json_schema)}
        held["response_format"] = {"type": "json_schema", "json_schema": schema}
    if ask.tool_choice is not None:
        choice = ask.tool_choice
        held["tool_choice"] = choice if isinstance(choice, str) else dict(choice)
    return held


def _message(said: Said) -> Message:
    calls = [
        ToolCallBlock(id=f"call_{place}", name=call.name, arguments=call.arguments)
        for place, call in enumerate(said.tool_calls)
    ]
    text = [TextBlock(text=said.text)] if said.text or not calls else []
    blocks: tuple[Block, ...] = (*text, *calls)
    return Message(role=Role.ASSISTANT, content=blocks)
