"""Estimate the maximum cost of a run before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from trajkit.rollouts.cast import model_key, model_url
from trajkit.rollouts.faults import shown_url
from trajkit.rollouts.gateway.paid import Asked, asked_by, is_here
from trajkit.rollouts.gateway.venue import Venue
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.plan import Plan

if TYPE_CHECKING:
    from trajkit.rollouts.preparation import Session, Sight

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
    """Maximum number of model calls, without retries; None when nothing limits them."""
    n_input_tokens: int | None
    """Tokens of all prompts, estimated from the environment's texts."""
    n_output_tokens: int | None
    """Tokens of all answers."""
    is_output_bound: bool
    """Whether answers have a limit; otherwise their number of tokens is an estimate."""
    cost_usd: float | None
    """Cost of these tokens in US dollars; None when prices or tokens are unknown."""


def estimate(session: Session, n_episodes: int) -> Estimate:
    """Estimate the maximum that a number of episodes of a session may use."""
    options, plan, sights, prices = session.options, session.plan, session.sights, session.prices
    each = asked_per_step(session)
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


def _n_steps(plan: Plan, sights: tuple[Sight, ...], n_episodes: int) -> int | None:
    """Return the maximum number of actions in some episodes; None when nothing limits them."""
    limits = []
    for sight in sights:
        bounds = [limit for limit in (sight.max_steps, plan.max_steps) if limit is not None]
        if not bounds:
            return None
        limits.append(min(bounds))
    if n_episodes == plan.n_jobs:
        return sum(limits) * (n_episodes // len(limits))
    return max(limits) * n_episodes


def asked_per_step(session: Session) -> Asked:
    """Return a session's model calls at one step; without models when all calls are free."""
    options = session.options
    match options.kind:
        case PolicyKind.GATEWAY:
            return _of_gateway(session.plan.variants, session.venue, session.function_name or "")
        case PolicyKind.OPENAI:
            return _of_endpoint(options)
        case PolicyKind.VLLM if options.model_url is not None and not is_here(options.model_url):
            return _of_vllm(options, shown_url(options.model_url))
        case PolicyKind.MODULE:
            return _of_agent(options, session.venue)
        case _:
            return Asked((), 0)


def _of_gateway(variants: Sequence[str], venue: Venue | None, function: str) -> Asked:
    if venue is None or venue.described_by is None:
        name = venue.name if venue else "the gateway"
        return Asked((f"any model of the gateway at {name}",), 1)
    asked = [asked_by(venue.described_by, function, one, stand_in_is=venue.model) for one in variants]
    names = dict.fromkeys(
        f"{venue.model or name} (variant {variant})"
        for variant, one in zip(variants, asked, strict=True)
        for name in one.models
    )
    limits = [one.max_tokens for one in asked if one.max_tokens is not None]
    return Asked(
        tuple(names),
        max(one.n_calls or 0 for one in asked),
        max(limits) if len(limits) == len(asked) else None,
        max(one.n_prompt_characters for one in asked),
    )


def _of_endpoint(options: Options) -> Asked:
    from trajkit.rollouts.endpoints.policy import read_settings

    url = model_url(options)
    names = () if is_here(url) else (f"{options.model} at {shown_url(url)}",)
    return Asked(names, 1, read_settings(options.policy_settings).max_tokens, _PROMPT_CHARACTERS)


def _of_vllm(options: Options, place: str) -> Asked:
    names = [player.served_as for player in options.players] or [options.model_called or options.model or ""]
    return Asked(tuple(f"{name} at {place}" for name in names), 1, None, _PROMPT_CHARACTERS)


def _of_agent(options: Options, venue: Venue | None) -> Asked:
    """Return the calls of an agent, which may call any reachable model any number of times."""
    if options.players and options.model_url is None:  # local models, and no gateway
        return Asked((), 0)
    names = []
    url = model_url(options)
    if options.players and not is_here(url):
        names += [f"{player.model} at {shown_url(url)}" for player in options.players]
    elif not is_here(url) and (options.model or options.model_url or model_key() is not None):
        names.append(f"{options.model or 'any model of the agent'} at {shown_url(url)}")
    if venue is not None and venue.names is not None and venue.described_by is not None:
        for function, variants in venue.names.functions.items():
            for variant in variants:
                found = asked_by(venue.described_by, function, variant, stand_in_is=venue.model)
                names += [f"{venue.model or name} (function {function})" for name in found.models]
    return Asked(tuple(dict.fromkeys(names)), None if names else 0)
