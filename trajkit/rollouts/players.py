"""Choose the policy from the options: the gateway and its variants, models, an expert, or an agent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trajkit._core.settings import project
from trajkit.environments.base import ActionRule
from trajkit.environments.module import attribute
from trajkit.errors import DataError, RequestError
from trajkit.formats.chat.message import read_messages
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.gateway.venue import Venue, check_metrics, choose_function, choose_variants, find_venue
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.own_prompt import OwnPrompts
from trajkit.rollouts.policies import Choice, Demonstration, Policy, Scripted, Situation
from trajkit.rollouts.prompts.variant import Prompts, VariantOf, VariantPrompts
from trajkit.stack.gateway_config import read_config
from trajkit.stack.state import local_stack

_SHOWING = (PolicyKind.EXPERT, PolicyKind.NOISY_EXPERT)
"""Policies that call no model, and whose steps have the prompt that a model would have seen."""
_PLAYED = (PolicyKind.LOCAL, PolicyKind.VLLM)
"""Policies of local models, which get trajkit's prompts or those of a gateway's variants."""
_PROMPTED = (*_SHOWING, *_PLAYED)
"""Policies that write a gateway's prompts without calling the gateway."""


def refuse_excluded(options: Options, kind: PolicyKind) -> None:
    """Refuse options that the policy does not use, so that none is silently ignored.

    Raises:
        RequestError: There is such an option, or a required one is missing.
    """
    if options.noise is not None and kind != PolicyKind.NOISY_EXPERT:
        raise RequestError(f"the policy {options.policy} has no noise", hint="--policy noisy-expert")
    if options.decodings and kind not in (PolicyKind.GATEWAY, PolicyKind.MODULE, *_PLAYED):
        raise RequestError(
            f"the policy {options.policy} takes no decoding",
            hint="use variants of the gateway, or --policy local",
        )
    _refuse_gateway(options, kind)
    asks_endpoint = kind in (PolicyKind.OPENAI, PolicyKind.VLLM, PolicyKind.MODULE)
    asks_model = asks_endpoint or kind == PolicyKind.LOCAL
    if (options.model and not asks_model) or (options.model_url and not asks_endpoint):
        name = "--model-url" if asks_model or not options.model else "--model"
        raise RequestError(
            f"the policy {options.policy} does not use {name}",
            hint="--policy openai, or an agent of your own; for the gateway: `trajkit up --model`",
        )
    if options.policy_settings and not asks_model:
        raise RequestError(f"the policy {options.policy} takes no --policy-set", hint="leave it out")
    if kind in (PolicyKind.OPENAI, *_PLAYED) and not (options.model or options.players):
        raise RequestError("no model is given", hint="--model NAME")


def _refuse_gateway(options: Options, kind: PolicyKind) -> None:
    """Refuse gateway options where no gateway is called and none of its prompts are written."""
    if kind == PolicyKind.GATEWAY or kind in _PROMPTED:
        if kind in _SHOWING and (len(options.variants) > 1 or "all" in options.variants):
            raise RequestError(
                "the steps of an expert have one prompt, and several variants are named",
                hint="choose one --variant",
            )
        return
    if options.variants or options.function:
        raise RequestError(
            f"the policy {options.policy} calls no gateway",
            hint="leave out --variant and --function, or play --policy gateway",
        )
    if kind != PolicyKind.MODULE and options.config_file:
        raise RequestError(
            f"the policy {options.policy} calls no gateway",
            hint="leave out --config, or play --policy gateway",
        )


class Who(NamedTuple):
    """The policies, and their venue."""

    venue: Venue | None
    function_name: str | None
    variants: tuple[str, ...]
    players: tuple[LocalPlayer, ...] = ()
    """Models, one for each variant; empty for other policies."""
    shows: bool = False
    """Whether the steps have the prompt that a model would have seen."""
    templates: VariantOf | None = None
    """The variant with these prompts; None for trajkit's own prompt."""


def who_plays(options: Options, kind: PolicyKind, metrics: tuple[str, ...]) -> Who:
    """Find the gateway, and the names of the policies.

    Raises:
        RequestError: There is no gateway, function, variant or agent of that name.
        ConfigError: The gateway's configuration lacks a metric, or cannot be read.
    """
    if kind == PolicyKind.GATEWAY:
        venue = find_venue(options.config_file)
        function_name = choose_function(venue, options.function)
        variants = choose_variants(venue, function_name, options.variants)
        check_metrics(venue, metrics)
        return Who(venue, function_name, variants)
    if kind in _PLAYED:
        players = options.players or local_players(options)
        return Who(None, None, tuple(player.name for player in players), players)
    if kind in _SHOWING:
        templates = next(iter(_templates(options)), None)
        return Who(None, None, (options.policy,), shows=True, templates=templates)
    if kind == PolicyKind.OPENAI:
        from trajkit.rollouts.endpoints.policy import read_settings

        read_settings(options.policy_settings)
    if kind == PolicyKind.MODULE:
        attribute(options.policy, noun="agent")  # checks that it can be imported
        if options.players:
            return Who(None, None, tuple(player.name for player in options.players), options.players)
        return Who(_venue_if_any(options), None, (options.policy,))
    return Who(None, None, (options.model or options.policy,))


def local_players(options: Options) -> tuple[LocalPlayer, ...]:
    """Return one model with the prompts of each named variant, or with trajkit's own prompt.

    Raises:
        RequestError: There is no such function or variant, or several and none is named.
        ConfigError: The configuration cannot be read.
    """
    assert options.model is not None
    called = options.model_called or options.model
    one = LocalPlayer(
        name=called,
        model=options.model,
        base=options.model_base,
        called=called,
        settings=options.policy_settings,
    )
    return tuple(
        one.model_copy(
            update={
                "name": each.variant,
                "config": str(each.config),
                "function": each.function,
                "variant": each.variant,
            }
        )
        for each in _templates(options)
    ) or (one,)


def demonstrated_prompts(templates: VariantOf | None, rule: ActionRule | None, *, history: int) -> Prompts:
    """Return the writer of the prompts in an expert's steps.

    Raises:
        RequestError: There is no such variant.
        ConfigError: The configuration is invalid.
    """
    if templates is None:
        return OwnPrompts(rule, history=history)
    return VariantPrompts(templates, history=history)


class Demonstrated(Scripted):
    """A policy that calls no model, but whose steps can train one.

    Args:
        policy: The policy that acts.
        prompts: Renders the prompts that a model would have seen.
    """

    def __init__(self, policy: Policy, prompts: Prompts) -> None:
        self._policy, self._prompts = policy, prompts

    async def act(self, situation: Situation) -> Choice:
        """Return the action, with the prompt and the completion that names it."""
        choice = await self._policy.act(situation)
        if not isinstance(choice.action, str):
            return choice
        try:
            prompt = self._prompts.of(situation)
        except DataError as error:
            raise Faulty(Fault(FaultKind.REFUSED, shown(error.message), is_lasting=True)) from error
        shows = Demonstration(
            function_name=self._prompts.function_name,
            input=prompt.input,
            messages=read_messages(prompt.messages),
            completion=prompt.answer(choice.action),
            tools=prompt.tools,
        )
        return choice._replace(shows=shows)


def _templates(options: Options) -> tuple[VariantOf, ...]:
    """Return the variants whose prompts are requested; empty if no option names one.

    Raises:
        RequestError: There is no configuration, function or variant of that name.
        ConfigError: The configuration cannot be read.
    """
    if not (options.config_file or options.function or options.variants):
        return ()
    config = _config(options)
    if config is None:
        raise RequestError(
            "the options name prompts of a gateway's function, but there is no configuration",
            hint="--config tensorzero.toml",
        )
    venue = Venue(str(config), read_config(config))
    function = choose_function(venue, options.function)
    return tuple(
        VariantOf(config, function, variant) for variant in choose_variants(venue, function, options.variants)
    )


def _config(options: Options) -> Path | None:
    """Return the gateway's configuration: the option, that of trajkit.toml, or the local stack's."""
    if options.config_file is not None:
        return options.config_file
    if (configured := project().config) is not None:
        return Path(configured)
    stack = local_stack()
    return None if stack is None else stack.config_file


def _venue_if_any(options: Options) -> Venue | None:
    """Return the gateway that an agent may call, if there is one."""
    try:
        return find_venue(options.config_file)
    except RequestError:
        if options.config_file is not None:
            raise
        return None
