"""Who is to play, decided from the options: the gateway and its variants, a model, or an agent."""

from __future__ import annotations

from typing import NamedTuple

from trajkit.environments.module import attribute
from trajkit.errors import RequestError
from trajkit.rollout.options import Options, PolicyKind
from trajkit.rollout.scout import Sight, all_metrics
from trajkit.rollout.venue import Venue, check_metrics, choose_function, choose_variants, find_venue


def refuse_excluded(options: Options, kind: PolicyKind) -> None:
    """Refuse what the policy has no use for: it would be silently without effect.

    Raises:
        RequestError: There is such an option, or one is missing that the policy needs.
    """
    if options.noise is not None and kind != PolicyKind.NOISY_EXPERT:
        raise RequestError(f"the policy {options.policy} makes no slips", hint="--policy noisy-expert")
    if kind != PolicyKind.GATEWAY and (options.variants or options.function):
        raise RequestError(
            f"the policy {options.policy} asks no gateway",
            hint="leave out --variant and --function, or play --policy gateway",
        )
    if kind not in (PolicyKind.GATEWAY, PolicyKind.MODULE) and options.config_file:
        raise RequestError(
            f"the policy {options.policy} asks no gateway",
            hint="leave out --config, or play --policy gateway",
        )
    asks_endpoint = kind in (PolicyKind.OPENAI, PolicyKind.MODULE)
    for name, value in (("--model", options.model), ("--model-url", options.model_url)):
        if value and not asks_endpoint:
            raise RequestError(
                f"the policy {options.policy} has no use for {name}",
                hint="--policy openai, or an agent of your own; for the gateway: `trajkit up --model`",
            )
    if options.policy_settings and not asks_endpoint:
        raise RequestError(f"the policy {options.policy} takes no --policy-set", hint="leave it out")
    if kind == PolicyKind.OPENAI and not options.model:
        raise RequestError("which model is to play?", hint="--model NAME")


class Who(NamedTuple):
    """Who plays, and where."""

    venue: Venue | None
    function_name: str | None
    variants: tuple[str, ...]


def who_plays(options: Options, kind: PolicyKind, sights: tuple[Sight, ...]) -> Who:
    """Find the gateway, and the names of those that play.

    Raises:
        RequestError: There is no gateway, function, variant or agent of that name.
        ConfigError: The gateway's configuration lacks a metric, or cannot be read.
    """
    if kind == PolicyKind.GATEWAY:
        venue = find_venue(options.config_file)
        function_name = choose_function(venue, options.function)
        variants = choose_variants(venue, function_name, options.variants)
        check_metrics(venue, all_metrics(sights))
        return Who(venue, function_name, variants)
    if kind == PolicyKind.OPENAI:
        from trajkit.rollout.endpoint_policy import read_settings

        read_settings(options.policy_settings)
    if kind == PolicyKind.MODULE:
        attribute(options.policy, noun="agent")  # whether it can be imported
        return Who(_venue_if_any(options), None, (options.policy,))
    return Who(None, None, (options.model or options.policy,))


def _venue_if_any(options: Options) -> Venue | None:
    """The gateway that an agent may ask; it need not."""
    try:
        return find_venue(options.config_file)
    except RequestError:
        if options.config_file is not None:
            raise
        return None
