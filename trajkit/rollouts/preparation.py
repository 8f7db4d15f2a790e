"""Prepare a rollout: choose open options, and refuse what cannot be played."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pydantic import JsonValue

from trajkit._core.secrets import HIDDEN, hidden, names_a_secret
from trajkit._core.settings import project, refuse_reserved
from trajkit.environments import typed_environment
from trajkit.environments.base import ActionRule, EnvironmentInfo, step_limit
from trajkit.rollouts.cast import DEFAULT_NOISE, model_url
from trajkit.rollouts.decoding import as_decoding
from trajkit.rollouts.faults import shown_url
from trajkit.rollouts.gateway.venue import Venue
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.plan import Plan, chosen
from trajkit.rollouts.players import Who, demonstrated_prompts, refuse_excluded, who_plays
from trajkit.rollouts.prompts.variant import VariantOf
from trajkit.rollouts.records.deliver import refuse_other
from trajkit.rollouts.records.journal import find_journal
from trajkit.rollouts.records.record import RETURN_METRIC
from trajkit.rollouts.running.costs import Estimate, asked_per_step, estimate
from trajkit.rollouts.running.limits import Prices
from trajkit.rollouts.seeds import chosen_seeds
from trajkit.schema import Purpose


class Sight(NamedTuple):
    """Properties of an episode before its first action."""

    metrics: tuple[str, ...]
    """Metrics that it will end with, the return last."""
    max_steps: int | None
    """Its step limit; None when the environment gives none."""
    n_characters: int
    """Characters of its mission."""
    n_characters_seen: int
    """Characters of its first observation."""


class Session(NamedTuple):
    """A rollout that passed every check and can begin."""

    options: Options
    plan: Plan
    sights: tuple[Sight, ...]
    """Properties of each task's first episode, in the plan's order."""
    venue: Venue | None
    """The gateway; None for a policy that needs none."""
    function_name: str | None
    """The gateway's function; None for a policy that needs none."""
    prices: Prices | None
    """Prices of tokens; None when unknown."""
    players: tuple[LocalPlayer, ...] = ()
    """Models, by the plan's variants; empty for other policies."""
    templates: VariantOf | None = None
    """The variant whose prompts an expert's steps have; None for trajkit's own prompt."""
    prompted: Mapping[str, JsonValue] = MappingProxyType({})
    """The values that identify the players, or an expert's prompts."""
    remarks: Mapping[str, JsonValue] = MappingProxyType({})
    """Further facts for the store's source; they do not identify the run."""
    server_ended: Callable[[], str | None] = lambda: None
    """Describes how a model server started for this rollout has ended; None while it runs."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics at the end of an episode."""
        return all_metrics(self.sights)

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """Arguments that decide what is played; none is a secret."""
        options = self.options
        arguments: dict[str, JsonValue] = self.plan.model_dump(mode="json", exclude=_NOT_DECIDING)
        if not self.plan.decodings:
            del arguments["decodings"]
        arguments["policy"] = options.policy
        arguments |= self.prompted
        if options.kind == PolicyKind.NOISY_EXPERT:
            arguments["noise"] = DEFAULT_NOISE if options.noise is None else options.noise
        if options.policy_settings and options.kind not in (PolicyKind.LOCAL, PolicyKind.VLLM):
            arguments["policy_settings"] = shown_settings(options.policy_settings)
        if options.kind in (PolicyKind.OPENAI, PolicyKind.MODULE):
            arguments["model"] = options.model
            if not options.players or options.model_url is not None:
                arguments["model_url"] = shown_url(model_url(options))
        if self.function_name is not None:
            arguments["function"] = self.function_name
        if self.venue is not None:
            arguments["gateway"] = list(self.venue.identity)
        return arguments

    def paid_models(self) -> tuple[str, ...]:
        """Return the called models that cost money."""
        return asked_per_step(self).models

    def estimate(self) -> Estimate:
        """Estimate the maximum cost of the episodes that are still to be played."""
        n_done = 0 if self.options.new_run else find_journal(self.plan, self.arguments).n_done
        return estimate(self, self.plan.n_episodes - n_done)


_NOT_DECIDING = {"run", "concurrency", "timeout_s", "episode_timeout_s", "retries"}


def shown_settings(settings: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return settings of a policy that may be written and printed, without secrets."""
    return {name: HIDDEN if names_a_secret(name) else hidden(value) for name, value in settings.items()}


def prepare(options: Options) -> Session:
    """Choose open options, and refuse a rollout that cannot be played.

    Raises:
        RequestError: A name is unknown, two options exclude each other, or training seeds are reserved
            for evaluation.
        ConfigError: The gateway's configuration lacks a metric, or cannot be read.
        StoreError: The store exists.
        MissingExtra: A package is not installed.
        RolloutError: The environment failed at its first reset.
    """
    kind = options.kind
    info = typed_environment(options.env_id, options.env_settings)
    tasks = chosen(options.tasks, info.tasks, noun="task", of=options.env_id)
    seeds = chosen_seeds(seeds=options.seeds, episodes=options.episodes, seed=options.seed)
    if options.purpose == Purpose.TRAIN:
        refuse_reserved(info.env_id, tasks, seeds)
    if options.store is not None:
        refuse_other(options.store)
    refuse_excluded(options, kind)
    settings = project()
    prices = options.prices(settings.input_price, settings.output_price)
    sights = tuple(look(info, task, seeds[0]) for task in tasks)
    who = who_plays(options, kind, all_metrics(sights))
    plan = Plan(
        env_id=options.env_id,
        env_name="" if info.env_id == options.env_id else info.env_id,
        env_settings=options.env_settings,
        tasks=tasks,
        variants=who.variants,
        decodings=tuple(dict.fromkeys(map(as_decoding, options.decodings))),
        seeds=seeds,
        shard=options.shard,
        purpose=options.purpose,
        run_seed=options.run_seed,
        history=options.history,
        max_steps=options.max_steps,
        concurrency=options.side_by_side,
        timeout_s=options.timeout_s,
        episode_timeout_s=options.episode_timeout_s,
        retries=options.retries,
    )
    session = Session(options, plan, sights, who.venue, who.function_name, prices)
    prompted = _prompted(options, who, info.rule)
    return session._replace(players=who.players, templates=who.templates, prompted=prompted)


def look(info: EnvironmentInfo, task: str, seed: int) -> Sight:
    """Begin an episode, read its properties, and close it.

    Raises:
        RolloutError: The environment failed.
        MissingExtra: Its package is not installed.
    """
    environment = info.make(task)
    try:
        start = environment.reset(seed)
        limit = step_limit(environment)
        metrics = (*environment.statistics(), RETURN_METRIC)
        return Sight(metrics, limit, len(start.mission), len(start.observation))
    finally:
        environment.close()


def all_metrics(sights: Sequence[Sight]) -> tuple[str, ...]:
    """The metrics of several tasks, the return last."""
    names = dict.fromkeys(name for sight in sights for name in sight.metrics if name != RETURN_METRIC)
    return (*names, RETURN_METRIC)


def _prompted(options: Options, who: Who, rule: ActionRule | None) -> dict[str, JsonValue]:
    """Return the values that identify the playing models, or the prompts of an expert.

    Raises:
        RequestError: A model does not exist, or a setting or a variant is invalid.
        ConfigError: The configuration is invalid.
    """
    if who.players and options.kind == PolicyKind.MODULE:  # the prompts are the agent's
        is_here = options.model_url is None
        return {"players": [player.model_identity(is_here=is_here) for player in who.players]}
    if who.players:
        is_local = options.kind == PolicyKind.LOCAL
        return {
            "players": [
                player.identity(rule, history=options.history, is_here=is_local or player.is_folder)
                for player in who.players
            ]
        }
    if who.shows:
        return {"prompts": demonstrated_prompts(who.templates, rule, history=options.history).digest}
    return {}
