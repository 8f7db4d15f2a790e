"""A rollout before it begins: what was left open is decided, and what cannot be played is refused."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from trajkit._settings import project, refuse_reserved
from trajkit.environments import environment_info
from trajkit.rollout.cast import DEFAULT_NOISE, model_url, shown_url
from trajkit.rollout.costs import Estimate, estimate, paid_models
from trajkit.rollout.deliver import refuse_other
from trajkit.rollout.journal import find_journal
from trajkit.rollout.limits import Prices
from trajkit.rollout.options import Options, PolicyKind
from trajkit.rollout.plan import Plan, chosen
from trajkit.rollout.players import refuse_excluded, who_plays
from trajkit.rollout.scout import Sight, all_metrics, look
from trajkit.rollout.seeds import chosen_seeds
from trajkit.rollout.venue import Venue
from trajkit.schema import Purpose


class Session(NamedTuple):
    """A rollout that can begin: everything that can be refused beforehand was not."""

    options: Options
    plan: Plan
    sights: tuple[Sight, ...]
    """What each task shows, in the plan's order."""
    venue: Venue | None
    """Where the gateway is; None for a policy that needs none."""
    function_name: str | None
    """The gateway's function; None for a policy that needs none."""
    prices: Prices | None
    """What tokens cost; None when that is not known."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that episodes end with."""
        return all_metrics(self.sights)

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """All that decides what is played; none of it is a secret."""
        options = self.options
        arguments: dict[str, JsonValue] = self.plan.model_dump(mode="json", exclude=_NOT_DECIDING)
        arguments["policy"] = options.policy
        if options.kind == PolicyKind.NOISY_EXPERT:
            arguments["noise"] = DEFAULT_NOISE if options.noise is None else options.noise
        if options.policy_settings:
            arguments["policy_settings"] = dict(options.policy_settings)
        if options.kind in (PolicyKind.OPENAI, PolicyKind.MODULE):
            arguments["model"] = options.model
            arguments["model_url"] = shown_url(model_url(options))
        if self.function_name is not None:
            arguments["function"] = self.function_name
        if self.venue is not None:
            arguments["gateway"] = list(self.venue.identity)
        return arguments

    def paid_models(self) -> tuple[str, ...]:
        """The models that are asked and cost money."""
        return paid_models(self.options, self.plan, self.venue, self.function_name)

    def estimate(self) -> Estimate:
        """What is still to be played may cost at most."""
        n_done = 0 if self.options.new_run else find_journal(self.plan, self.arguments).n_done
        return estimate(
            self.options,
            self.plan,
            self.sights,
            self.plan.n_episodes - n_done,
            venue=self.venue,
            function=self.function_name,
            prices=self.prices,
        )


_NOT_DECIDING = {"run", "concurrency", "timeout_s", "episode_timeout_s", "retries"}


def prepare(options: Options) -> Session:
    """Decide what was left open, and refuse what cannot be played before anything is.

    Raises:
        RequestError: Something is not known here, two options exclude each other, or seeds that are reserved
            for evaluation would train.
        ConfigError: The gateway's configuration lacks a metric, or cannot be read.
        StoreError: The store exists.
        MissingExtra: A package is not installed.
        RolloutError: The environment failed at a first look.
    """
    kind = options.kind
    info = environment_info(options.env_id, options.env_settings)
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
    venue, function_name, variants = who_plays(options, kind, sights)
    plan = Plan(
        env_id=options.env_id,
        env_name="" if info.env_id == options.env_id else info.env_id,
        env_settings=options.env_settings,
        tasks=tasks,
        variants=variants,
        seeds=seeds,
        shard=options.shard,
        purpose=options.purpose,
        run_seed=options.run_seed,
        history=options.history,
        max_steps=options.max_steps,
        concurrency=1 if kind == PolicyKind.HUMAN else options.concurrency,
        timeout_s=options.timeout_s,
        episode_timeout_s=options.episode_timeout_s,
        retries=options.retries,
    )
    return Session(options, plan, sights, venue, function_name, prices)
