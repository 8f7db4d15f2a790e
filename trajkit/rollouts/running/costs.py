"""Estimate the maximum cost of a run before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trajkit.rollouts.cast import has_key, model_url, shown_url
from trajkit.rollouts.gateway.paid import asked_by, is_here
from trajkit.rollouts.gateway.venue import Venue
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.running.limits import Prices
from trajkit.rollouts.running.scout import Sight

CHARACTERS_PER_TOKEN = 3
"""Characters per token: fewer than in most texts (about 4 in English), so that estimates are high."""
OUTPUT_TOKENS = 300
"""Assumed tokens of an answer without a limit: some sentences of reasoning and an action."""
_PROMPT_CHARACTERS = 1000
"""Characters that the policy openai adds to an observation, including the actions."""


class Estimate(NamedTuple):
    """The estimated maximum that a run may use."""

    models: tuple[str, ...]
    """Models that cost money; empty when all calls are free."""
    n_episodes: int
    """Episodes that are still to be played."""
    n_calls: int | None
    """Most calls of models without retries; None when nothing limits them."""
    n_input_tokens: int | None
    """Tokens of all prompts, estimated from the environment's texts."""
    n_output_tokens: int | None
    """Tokens of all answers."""
    is_output_bound: bool
    """Whether answers have a limit; otherwise their number of tokens is an estimate."""
    cost_usd: float | None
    """Cost of these tokens in US dollars; None when prices or tokens are unknown."""


class _PerStep(NamedTuple):
    """The model calls of one step."""

    models: tuple[str, ...]
    n_calls: int | None
    max_tokens: int | None
    n_prompt_characters: int


def estimate(
    options: Options,
    plan: Plan,
    sights: tuple[Sight, ...],
    n_episodes: int,
    *,
    venue: Venue | None,
    function: str | None,
    prices: Prices | None,
) -> Estimate:
    """Estimate the maximum that the rest of a run may use.

    Args:
        options: The options of the rollout.
        plan: The episodes to play.
        sights: The properties of the tasks, in the plan's order.
        n_episodes: Number of episodes that are still to be played.
        venue: The gateway; None for a policy that needs none.
        function: The gateway's function.
        prices: The prices of tokens; None when unknown.
    """
    each = _per_step(options, plan, venue, function)
    n_steps = _n_steps(plan, sights, n_episodes)
    n_calls = None if n_steps is None or each.n_calls is None else n_steps * each.n_calls
    if options.max_calls is not None:
        n_calls = options.max_calls if n_calls is None else min(n_calls, options.max_calls)
    if n_calls is None:
        return Estimate(each.models, n_episodes, None, None, None, False, options.max_cost_usd)
    seen = max(sight.n_characters + (1 + plan.history) * sight.n_characters_seen for sight in sights)
    n_in = n_calls * math.ceil((seen + each.n_prompt_characters) / CHARACTERS_PER_TOKEN)
    n_out = n_calls * (OUTPUT_TOKENS if each.max_tokens is None else each.max_tokens)
    cost_usd = options.max_cost_usd
    if prices is not None:
        cost_usd = min(prices.cost_usd(n_in, n_out), math.inf if cost_usd is None else cost_usd)
    return Estimate(each.models, n_episodes, n_calls, n_in, n_out, each.max_tokens is not None, cost_usd)


def paid_models(options: Options, plan: Plan, venue: Venue | None, function: str | None) -> tuple[str, ...]:
    """Return the models that a run calls and that cost money; empty when all calls are free."""
    return _per_step(options, plan, venue, function).models


def _n_steps(plan: Plan, sights: tuple[Sight, ...], n_episodes: int) -> int | None:
    """Return the most actions in a number of episodes; None when nothing limits them."""
    limits = []
    for sight in sights:
        bounds = [limit for limit in (sight.max_steps, plan.max_steps) if limit is not None]
        if not bounds:
            return None
        limits.append(min(bounds))
    if n_episodes == plan.n_jobs:
        return sum(limits) * (n_episodes // len(limits))
    return max(limits) * n_episodes


def _per_step(options: Options, plan: Plan, venue: Venue | None, function: str | None) -> _PerStep:
    match options.kind:
        case PolicyKind.GATEWAY:
            return _of_gateway(plan.variants, venue, function or "")
        case PolicyKind.OPENAI:
            return _of_endpoint(options)
        case PolicyKind.VLLM if options.model_url is not None and not is_here(options.model_url):
            return _of_vllm(options, shown_url(options.model_url))
        case PolicyKind.MODULE:
            return _of_agent(options, venue)
        case _:
            return _PerStep((), 0, None, 0)


def _of_gateway(variants: Sequence[str], venue: Venue | None, function: str) -> _PerStep:
    if venue is None or venue.described_by is None:
        name = venue.name if venue else "the gateway"
        return _PerStep((f"any model of the gateway at {name}",), 1, None, 0)
    asked = [asked_by(venue.described_by, function, one, stand_in_is=venue.model) for one in variants]
    names = dict.fromkeys(
        f"{venue.model or name} (variant {variant})"
        for variant, one in zip(variants, asked, strict=True)
        for name in one.models
    )
    limits = [one.max_tokens for one in asked if one.max_tokens is not None]
    return _PerStep(
        tuple(names),
        max(one.n_calls for one in asked),
        max(limits) if len(limits) == len(asked) else None,
        max(one.n_prompt_characters for one in asked),
    )


def _of_endpoint(options: Options) -> _PerStep:
    from trajkit.rollouts.endpoints.policy import read_settings

    url = model_url(options)
    names = () if is_here(url) else (f"{options.model} at {shown_url(url)}",)
    return _PerStep(names, 1, read_settings(options.policy_settings).max_tokens, _PROMPT_CHARACTERS)


def _of_vllm(options: Options, place: str) -> _PerStep:
    names = [player.served_as for player in options.players] or [options.model_called or options.model or ""]
    return _PerStep(tuple(f"{name} at {place}" for name in names), 1, None, _PROMPT_CHARACTERS)


def _of_agent(options: Options, venue: Venue | None) -> _PerStep:
    """Return the calls of an agent, which may call any reachable model any number of times."""
    if options.players and options.model_url is None:  # models of this machine, and no gateway
        return _PerStep((), 0, None, 0)
    names = []
    url = model_url(options)
    if options.players and not is_here(url):
        names += [f"{player.model} at {shown_url(url)}" for player in options.players]
    elif not is_here(url) and (options.model or options.model_url or has_key()):
        names.append(f"{options.model or 'any model of the agent'} at {shown_url(url)}")
    if venue is not None and venue.names is not None and venue.described_by is not None:
        for function, variants in venue.names.functions.items():
            for variant in variants:
                found = asked_by(venue.described_by, function, variant, stand_in_is=venue.model)
                names += [f"{venue.model or name} (function {function})" for name in found.models]
    return _PerStep(tuple(dict.fromkeys(names)), None if names else 0, None, 0)
