"""Play seeded episodes of an environment."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit.commands.place import Many, Place, Settings, many, path_or_none, remember_store, texts
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.rollouts.costs import Estimate
    from trajkit.rollouts.deliver import Prompts
    from trajkit.rollouts.options import Options
    from trajkit.rollouts.record import Played
    from trajkit.rollouts.rows import Checked
    from trajkit.rollouts.session import Run, Session
    from trajkit.rollouts.summary import Row
    from trajkit.store.dataset import Dataset


@dataclass(frozen=True)
class Rollout:
    """How a rollout went; after a dry run only what it would take."""

    estimate: Estimate
    """What was to be played, and what it may cost at most."""
    rows: tuple[Row, ...] = ()
    """Means with standard errors, by variant and task; none after a dry run."""
    n_done: int = 0
    """Episodes that are done, those of earlier runs included."""
    n_planned: int = 0
    """Episodes of the whole plan."""
    errors: tuple[str, ...] = ()
    """Why episodes ended without a result, each message once."""
    reached: str | None = None
    """The limit that stopped it; None where all was played."""
    rows_checked: Checked | None = None
    """What a gateway elsewhere lost or has too much; None where that was not asked or cannot be."""
    path: Path | None = None
    """The store; None where none was asked for."""

    @property
    def is_complete(self) -> bool:
        """Whether every episode is done, and every row of it in the gateway's database."""
        is_kept = self.rows_checked is None or not self.rows_checked.missing
        return self.n_done == self.n_planned and is_kept

    @property
    def dataset(self) -> Dataset:
        """The episodes of the store.

        Raises:
            RequestError: None was written.
        """
        from trajkit.store.dataset import open_dataset

        if self.path is None:
            raise RequestError("no store was written", hint="output='stores/mine' writes one")
        return open_dataset(self.path)


def rollout(
    env_id: str,
    *,
    env_set: Settings | None = None,
    task: Many = (),
    variant: Many = (),
    policy: str = "gateway",
    policy_set: Settings | None = None,
    model: str | None = None,
    model_url: str | None = None,
    noise: float | None = None,
    seeds: str | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    shard: str = "1/1",
    purpose: Literal["train", "eval"] = "train",
    history: int = 8,
    max_steps: int | None = None,
    run_seed: int = 0,
    concurrency: int | None = None,
    timeout: float = 180.0,
    episode_timeout: float | None = None,
    retries: int = 3,
    max_calls: int | None = None,
    max_cost_usd: float | None = None,
    max_minutes: float | None = None,
    input_price: float | None = None,
    output_price: float | None = None,
    function: str | None = None,
    config: Place | None = None,
    runs: Place = "runs",
    output: Place | None = None,
    new_run: bool = False,
    dry_run: bool = False,
    yes: bool = False,
) -> Rollout:
    """Play seeded episodes of an environment, log them, and say how they went.

    What is finished is kept: the same call again plays only what is missing.

    Args:
        env_id: The environment, such as `babyai`.
        env_set: Its settings.
        task: Tasks, or games; none for all.
        variant: Variants of the function, or `all`.
        policy: Who plays: gateway, local, openai, expert, noisy-expert, random, or `my_pkg.agent:MyAgent`.
        policy_set: Settings of local, openai or an agent.
        model: The model of openai and of an agent's calls; of local a job's name, a folder, an id, a sample.
        model_url: Its OpenAI-compatible server.
        noise: Share of a noisy expert's slips; None for 0.3.
        seeds: Of every task: `A:B`, `A:B:STEP`, `1,5,9`, or a file of them.
        episodes: Seeds of every task, from `seed`; None for 20.
        seed: The first seed; None for 0.
        shard: `I/N`: play only this part of everything.
        purpose: Marks every inference and feedback; eval episodes never train.
        history: Steps shown back.
        max_steps: Cut an episode off after so many actions.
        run_seed: Seed of what is sampled, and of the order.
        concurrency: Most requests in flight at once; None for 16, or 64 with local.
        timeout: Seconds to wait for one request.
        episode_timeout: Seconds for one episode.
        retries: After a service's failure.
        max_calls: Stop after so many requests to models.
        max_cost_usd: Stop before more than this is spent.
        max_minutes: Stop after so many minutes.
        input_price: US dollars per million tokens of prompts; None for that of trajkit.toml.
        output_price: US dollars per million tokens of answers; None for that of trajkit.toml.
        function: The gateway's function; None for that of trajkit.toml, the only one, or act.
        config: The gateway's `tensorzero.toml`.
        runs: The folder where jobs are kept.
        output: Write a store as well.
        new_run: Play everything anew.
        dry_run: Play nothing, and say what it may cost.
        yes: Ask models that cost money.

    Raises:
        RequestError: Something cannot be played as asked, or a model costs money and `yes` is not given.
        ServiceError: The gateway, its database or the model is down.
        RolloutError: The environment or the agent fails every time.
    """
    from trajkit.rollouts.session import prepare

    given = {
        "env_id": env_id,
        "env_settings": texts(env_set),
        "tasks": many(task),
        "variants": many(variant),
        "policy": policy,
        "policy_settings": texts(policy_set),
        "model": model,
        "model_url": model_url,
        "noise": noise,
        "seeds": seeds,
        "episodes": episodes,
        "seed": seed,
        "shard": shard,
        "purpose": purpose,
        "history": history,
        "max_steps": max_steps,
        "run_seed": run_seed,
        "concurrency": concurrency,
        "timeout_s": timeout,
        "episode_timeout_s": episode_timeout,
        "retries": retries,
        "max_calls": max_calls,
        "max_cost_usd": max_cost_usd,
        "max_minutes": max_minutes,
        "input_price": input_price,
        "output_price": output_price,
        "function": function,
        "config_file": path_or_none(config),
        "store": path_or_none(output),
        "new_run": new_run,
    }
    session = prepare(rollout_options(given, Path(runs)))
    if dry_run:
        return Rollout(session.estimate())
    refuse_unpaid(session, yes=yes)
    return play(session)


def rollout_options(given: Mapping[str, Any], runs_folder: Path) -> Options:
    """The options of a rollout, with a model of this machine found by its name.

    Args:
        given: Fields of the options; None or nothing leaves one as it is.
        runs_folder: Where jobs are kept.

    Raises:
        RequestError: A value cannot be, or there is no such model.
    """
    from trajkit.commands.local_model import local_model
    from trajkit.rollouts.options import PolicyKind

    found = {name: value for name, value in given.items() if value not in (None, (), {})}
    if found.get("policy") == PolicyKind.LOCAL and "model" in found:
        found |= local_model(found["model"], runs_folder).options
    return checked(found)


def checked(given: Mapping[str, Any]) -> Options:
    """Options of a rollout, each of which was looked at.

    Raises:
        RequestError: A value cannot be, such as nan.
    """
    from pydantic import ValidationError

    from trajkit.rollouts.options import Options

    try:
        return Options.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RequestError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def refuse_unpaid(session: Session, *, yes: bool) -> None:
    """Raise when a model that costs money is about to be asked, and nobody said yes.

    Raises:
        RequestError: One is.
    """
    if yes or not session.paid_models() or (estimate := session.estimate()).n_episodes == 0:
        return
    raise RequestError(
        f"this asks a model that may cost money: {', '.join(estimate.models)}",
        hint="--yes plays it, --dry-run shows the plan alone",
    )


def play(session: Session) -> Rollout:
    """Play what is missing of a session, write its store, and say how it went."""
    from trajkit.environments.quiet import kept_stdout
    from trajkit.rollouts.session import open_run

    with open_run(session) as run, kept_stdout():
        return play_run(run)


def play_run(run: Run) -> Rollout:
    """Play what is missing of an opened run, write its store, and say how it went."""
    estimate, errors = run.session.estimate(), dict[str, None]()

    def take(played: Played) -> None:
        if played.fault is not None:
            errors[f"{played.fault.kind.value}: {played.fault.message}"] = None

    run.play(on_played=take)
    written = run.write(prompts_of(run.session))
    if written is not None:
        remember_store(written.path, is_evaluation=run.plan.purpose == "eval")
    plan = run.plan
    return Rollout(
        estimate,
        rows=tuple(run.table.rows([*plan.variants, *plan.tasks])),
        n_done=run.journal.n_done,
        n_planned=plan.n_episodes,
        errors=tuple(errors),
        reached=None if run.reached is None else str(run.reached),
        rows_checked=rows_of(run),
        path=None if written is None else written.path,
    )


def prompts_of(session: Session) -> Prompts | None:
    """Who knows the exact prompts: the database behind the gateway, where its address is known."""
    database = session.venue.clickhouse_url if session.venue else None
    if database is None or session.options.store is None:
        return None
    from trajkit.sources.tensorzero.export.prompts import rendered_prompts

    return functools.partial(rendered_prompts, database.get_secret_value())


def rows_of(run: Run) -> Checked | None:
    """What a gateway that somebody else runs has kept; None where its database is not known, or ours."""
    venue = run.session.venue
    if venue is None or venue.gateway_url is None or venue.clickhouse_url is None or run.journal.n_done == 0:
        return None
    from trajkit.sources.tensorzero.connect.rows import stored_rows

    return run.check_rows(functools.partial(stored_rows, venue.clickhouse_url.get_secret_value()))
