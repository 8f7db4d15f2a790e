"""A rollout from what was asked to what is left: refuse early, play, log, write a store if wanted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, JsonValue

import trajkit
from trajkit._files import refuse_existing
from trajkit.environments import environment_info
from trajkit.errors import RequestError
from trajkit.rollout.gateway_policy import GatewayPolicy
from trajkit.rollout.plan import Plan, chosen
from trajkit.rollout.policies import Expert, NoisyExpert, Policy, Random
from trajkit.rollout.record import RETURN_METRIC, Played, to_episode
from trajkit.rollout.runner import metric_names, play
from trajkit.rollout.seeds import seed_range
from trajkit.rollout.spool import Prompts, Spool
from trajkit.rollout.venue import (
    Venue,
    check_metrics,
    choose_function,
    choose_variants,
    find_venue,
    open_venue,
)
from trajkit.schema import FeedbackKind, LineageEntry, Manifest, Metric, MetricLevel, Model, Purpose
from trajkit.schema.base import Count, Name


class PolicyKind(StrEnum):
    """Who can play."""

    GATEWAY = "gateway"
    """Variants of a function of the gateway."""
    EXPERT = "expert"
    """The environment's own solution."""
    RANDOM = "random"
    """Any legal action."""
    NOISY_EXPERT = "noisy-expert"
    """The expert with slips."""


class Options(Model):
    """What is asked of a rollout; what is left out is decided by `prepare`."""

    env_id: Name
    """The environment, such as `babyai`."""
    tasks: tuple[Name, ...] = ("all",)
    """Tasks to play; `all` is every one."""
    policy: PolicyKind = PolicyKind.GATEWAY
    """Who plays."""
    function: Name | None = None
    """The gateway's function; None takes the one of trajkit.toml, the only one, or `act`."""
    variants: tuple[Name, ...] = ()
    """Variants of the function; `all` is every one; none is the only one."""
    noise: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability of a slip of the noisy expert; None is 0.3 for it, and the only choice for others."""
    seeds: str | None = None
    """Seeds `A:B`, A to B - 1, for every task; excludes the next two."""
    episodes: Annotated[int, Field(ge=1)] | None = None
    """How many episodes of every task; 20 when no seeds are given either."""
    seed: Count | None = None
    """The first seed."""
    purpose: Purpose = Purpose.TRAIN
    """What the episodes are for."""
    run_seed: Count = 0
    """Seed of everything that is sampled."""
    history: Count = 8
    """Latest steps shown to the model."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Most requests in flight."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    retries: Count = 3
    """How often a failed request is sent again."""
    config_file: Path | None = None
    """The gateway's configuration; None as in `find_venue`."""
    store: Path | None = None
    """Store to write when all is played; None writes none."""


class Session(NamedTuple):
    """A rollout that can begin: everything that can be refused beforehand was not."""

    options: Options
    plan: Plan
    metrics: tuple[str, ...]
    """Metrics that every episode ends with."""
    venue: Venue | None
    """Where the gateway is; None for a policy that needs none."""
    function_name: str | None
    """The gateway's function; None for a policy that needs none."""


class Written(NamedTuple):
    """The store that a rollout left."""

    path: Path
    manifest: Manifest
    n_without_prompt: int
    """Inferences whose prompt was asked for and not found."""


def prepare(options: Options) -> Session:
    """Decide what was left open, and refuse what cannot be played before anything is.

    Raises:
        RequestError: Something is not known here, or two options exclude each other.
        ConfigError: The gateway's configuration lacks a metric, or cannot be read.
        StoreError: The store exists.
        MissingExtra: A package is not installed.
    """
    info = environment_info(options.env_id)
    tasks = chosen(options.tasks, info.tasks, noun="task", of=options.env_id)
    seeds = seed_range(seeds=options.seeds, episodes=options.episodes, seed=options.seed)
    if options.store is not None:
        refuse_existing(options.store)
    if options.noise is not None and options.policy != PolicyKind.NOISY_EXPERT:
        raise RequestError(f"the policy {options.policy.value} makes no slips", hint="--policy noisy-expert")
    metrics = metric_names(info, tasks[0])
    venue, function_name = None, None
    if options.policy == PolicyKind.GATEWAY:
        venue = find_venue(options.config_file)
        function_name = choose_function(venue, options.function)
        variants = choose_variants(venue, function_name, options.variants)
        check_metrics(venue, metrics)
    elif options.variants or options.function or options.config_file:
        raise RequestError(
            f"the policy {options.policy.value} asks no gateway",
            hint="leave out --variant, --function and --config, or play --policy gateway",
        )
    else:
        variants = (options.policy.value,)
    plan = Plan(
        env_id=options.env_id,
        tasks=tasks,
        variants=variants,
        seed_start=seeds.start,
        seed_stop=seeds.stop,
        purpose=options.purpose,
        run_seed=options.run_seed,
        history=options.history,
        concurrency=options.concurrency,
        timeout_s=options.timeout_s,
        retries=options.retries,
    )
    return Session(options, plan, metrics, venue, function_name)


def run(
    session: Session,
    *,
    on_played: Callable[[Played], None],
    on_step: Callable[[], None] | None = None,
    prompts: Prompts | None = None,
) -> Written | None:
    """Play a session to its end.

    Ctrl-C stops it: episodes that were not finished have no feedback, and no store is written.

    Args:
        session: From `prepare`.
        on_played: Called with each episode when it ends.
        on_step: Called after each step.
        prompts: Looks up exact prompts for the store; None leaves them unknown.

    Returns:
        The store; None when none was asked for.

    Raises:
        ServiceError: The gateway, its database or the model is down.
        RequestError: The gateway refuses every request of this kind.
    """
    goal = session.options.store
    with Spool() as spool:

        def take(played: Played) -> None:
            if goal is not None:
                spool.add(to_episode(played))
            on_played(played)

        asyncio.run(_play(session, take, on_step))
        return None if goal is None else _write(session, spool, goal, prompts)


async def _play(
    session: Session, on_played: Callable[[Played], None], on_step: Callable[[], None] | None
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        policies = await _policies(session, stack)
        await play(session.plan, policies, on_played=on_played, on_step=on_step)


async def _policies(session: Session, stack: contextlib.AsyncExitStack) -> Mapping[str, Policy]:
    plan, options = session.plan, session.options
    if session.venue is None or session.function_name is None:
        scripted: dict[PolicyKind, Policy] = {
            PolicyKind.EXPERT: Expert(),
            PolicyKind.RANDOM: Random(plan.run_seed),
            PolicyKind.NOISY_EXPERT: NoisyExpert(plan.run_seed, _noise(options)),
        }
        return {options.policy.value: scripted[options.policy]}
    gateway = await stack.enter_async_context(open_venue(session.venue))
    return {
        variant: GatewayPolicy(gateway, plan, function_name=session.function_name, variant_name=variant)
        for variant in plan.variants
    }


def _noise(options: Options) -> float:
    return 0.3 if options.noise is None else options.noise


def _write(session: Session, spool: Spool, goal: Path, prompts: Prompts | None) -> Written:
    from trajkit.store.writer import write_episodes

    entry = LineageEntry(
        verb="rollout",
        arguments=_arguments(session),
        n_episodes_in=spool.n_episodes,
        n_episodes_out=spool.n_episodes,
        n_steps_in=spool.n_steps,
        n_steps_out=spool.n_steps,
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )
    source: dict[str, JsonValue] = {"kind": "rollout", "env_id": session.plan.env_id, "run": session.plan.run}
    if session.venue is not None:
        source["gateway"] = session.venue.name
    manifest = write_episodes(
        goal,
        spool.episodes(prompts),
        kind="rollout",
        source=source,
        lineage=[entry],
        metrics=[_metric(session, name) for name in session.metrics],
    )
    return Written(goal, manifest, spool.n_without_prompt)


def _arguments(session: Session) -> dict[str, JsonValue]:
    """The decided options; none of them is a secret."""
    arguments: dict[str, JsonValue] = session.plan.model_dump(mode="json")
    arguments["policy"] = session.options.policy.value
    if session.options.policy == PolicyKind.NOISY_EXPERT:
        arguments["noise"] = _noise(session.options)
    if session.function_name is not None:
        arguments["function"] = session.function_name
    return arguments


def _metric(session: Session, name: str) -> Metric:
    declared = session.venue.names.metrics.get(name) if session.venue and session.venue.names else None
    if declared is not None:
        optimize: str | None = declared.optimize
    else:
        optimize = "max" if name == RETURN_METRIC else None
    return Metric(name=name, level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT, optimize=optimize)
