"""Train a model by reinforcement learning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from trajkit._core.address import place_of
from trajkit._core.output.console import count, is_open, plural
from trajkit._core.settings import project
from trajkit.commands.options.group import flattened
from trajkit.commands.options.request import given_fields, nested, picked, recipe
from trajkit.commands.options.training import JobOptions, ModelOptions, read_field
from trajkit.commands.options.types import Option, Place, Settings, StoreLike, TaskList, many
from trajkit.commands.place import near, store_path, texts
from trajkit.commands.play.local_model import first_model
from trajkit.commands.training.launch import carry_out, forget, is_under_way
from trajkit.commands.training.local import weight_lines
from trajkit.errors import RequestError
from trajkit.training.local.recipe import LoraRecipe
from trajkit.training.rl.recipe import PlayedRecipe, RlRecipe, TinkerRecipe, WorldRecipe

if TYPE_CHECKING:
    from trajkit.training.job import JobData, TuneJob
    from trajkit.training.rl.prepare import PreparedRl, PreparedTinker
    from trajkit.training.runs import Runs


class _World(TypedDict, total=False):
    """What to play, and how often."""

    env: Annotated[str | None, Option(metavar="ENVIRONMENT")]
    """Environment to play: babyai, textworld, `my_pkg.env:MyEnv` or `gym:Maze-v0`."""
    env_set: Annotated[Settings | None, Option(is_repeated=True, metavar="NAME=VALUE")]
    """A setting of the environment; may be repeated."""
    task: TaskList
    """Tasks, or games, with commas. Default: all."""
    seeds: Annotated[str, Option(metavar="SEEDS")]
    """Seeds to learn from. Default: as many as needed, from 0 on, without reserved ones."""
    eval_seeds: Annotated[str, Option(metavar="SEEDS")]
    """Reserved seeds to measure with, each on every task. Default: the first 32 that are reserved."""
    config: Annotated[Place | None, Option(metavar="FILE")]
    """Gateway configuration with the prompt templates. Default: that of trajkit.toml if --variant is given;
    without one the prompts are trajkit's own."""
    function: Annotated[str | None, Option(metavar="NAME")]
    """Function whose prompts are written. Default: that of trajkit.toml, else act."""
    variant: Annotated[str | None, Option(metavar="NAME")]
    """Variant of it."""
    history: int
    """Latest steps shown to the model with each observation."""
    max_new_tokens: int
    """Maximum tokens per answer."""
    max_episode_steps: int | None
    """Cut an episode off after this many actions."""
    iterations: int
    """How often the model plays and then learns."""
    seeds_per_iteration: int
    """Seeds that an iteration plays, each on every task."""
    num_generations: int
    """Attempts at each seed: the size of a group."""
    epochs: int
    """Passes over the steps of an iteration."""
    minibatches: int
    """Optimizer steps per pass."""
    eval_every: int
    """Iterations between two measurements on the held-out seeds."""
    keep_rollouts: bool
    """Keep what each iteration played as a store in the job's folder."""


class Local(ModelOptions, _World, JobOptions, total=False):
    """Options of `rl_local`."""

    from_: Annotated[StoreLike | None, Option(metavar="STORE")]
    """Store of logged episodes to learn from instead of playing; --env then only measures."""
    policy: Annotated[str, Option(metavar="MODULE:NAME")]
    """Your own agent, which plays with the model, such as `my_pkg.agent:MyAgent`; its calls are learned."""
    policy_set: Annotated[Settings | None, Option(is_repeated=True, metavar="NAME=VALUE")]
    """A setting of the agent; may be repeated."""
    algorithm: Literal["grpo", "gigpo", "rloo", "reinforce", "ppo", "awr"]
    """How the advantage of a step is estimated."""
    temperature: float
    """Sampling temperature."""
    beta: float
    """Coefficient of the KL divergence from the initial model."""
    entropy_coef: float
    """Coefficient of the entropy bonus."""
    max_kl: float | None
    """Stop when the KL divergence per token exceeds this, in nats."""


class Tinker(_World, JobOptions, total=False):
    """Options of `rl_tinker`."""

    algorithm: Literal["grpo", "gigpo", "rloo", "reinforce"]
    """How the advantage of a step is estimated."""
    loss_fn: Literal["importance_sampling", "ppo", "cispo"]
    """The service's loss."""
    learning_rate: float
    """Learning rate of Adam."""
    r: int
    """Rank of the adapter."""
    seed: int
    """Seed of the initial weights, of the sampling and of the order of the rows."""
    set: Annotated[Settings | None, Option(is_repeated=True, metavar="NAME=VALUE", read=read_field)]
    """Any other field of the recipe, such as baseline=attempts; may be repeated."""
    tokenizer: Annotated[str | None, Option(metavar="DIR|ID")]
    """The model's tokenizer. Default: that of the model's name on the Hub, or of the folder."""
    chat_template: Annotated[str | None, Option(metavar="NAME|FILE")]
    """Chat template in place of the tokenizer's: chatml, plain, or a file (Jinja)."""
    base_url: Annotated[str | None, Option(metavar="URL")]
    """Address of the service. Default: TINKER_BASE_URL of the environment, else Tinker's own."""


@flattened(RlRecipe, WorldRecipe, LoraRecipe)
def rl_local(
    *,
    model: Annotated[Place, Option(metavar="DIR|ID")],
    **options: Unpack[Local],
) -> TuneJob:
    """Train a model by playing on this machine.

    In each iteration the model plays groups of attempts at the same seeds, in lock step; each step gets an
    advantage, and the optimizer takes a few steps. Held-out seeds measure the model during training, and the
    best checkpoint is kept. The plan is printed first. Ctrl-C stops the waiting, not the training, which runs
    in its own process; `trajkit jobs` lists it, and a killed one resumes to the same weights. DIR/JOB/rl.html
    has the curves while it runs.

    Args:
        model: Model to start from: a folder, an id, a job, or `sample:tiny-base`.

    Raises:
        RequestError: A value is invalid, a seed to learn from is reserved, or one to measure with is not.
        TrainingError: Nothing can be learned, or the loss is not a number.
    """
    from trajkit.training.local.base_model import check_model
    from trajkit.training.local.outcome.finish import take_wishes
    from trajkit.training.local.running.launch import start
    from trajkit.training.rl.prepare import RlRequest, prepare_rl
    from trajkit.training.runs import Runs

    runs = Runs(Path(options["runs"]))
    given = {**_fields(options, RlRecipe), "lora": given_fields(options, LoraRecipe)}
    first = first_model(str(model), Path(options["runs"]))
    wanted = recipe(RlRecipe, first.recipe(nested(options["set"], given)))
    check_model(first.base)
    request = RlRequest(
        base=first.base,
        recipe=wanted,
        store=None if options["from_"] is None else place_of(store_path(options["from_"])),
        tokenizer=first.tokenizer(options["tokenizer"]),
        **picked(options, ("chat_template",)),
    )
    prepared = prepare_rl(request, runs, name=options["name"])

    def begin(runs: Runs, job_id: str) -> TuneJob:
        take_wishes(runs, job_id, wanted)  # also of an existing job
        return start(runs, job_id)

    return carry_out(
        prepared,
        runs,
        options,
        plan=_plan(prepared),
        question="Train?" if is_open() else None,
        nothing="nothing was trained",
        start=begin,
        n_steps=prepared.recipe.iterations,
    )


@flattened(TinkerRecipe, WorldRecipe)
def rl_tinker(
    *,
    model: Annotated[str, Option(metavar="NAME")],
    **options: Unpack[Tinker],
) -> TuneJob:
    """Train a model by reinforcement learning at a service with Tinker's API.

    As `rl local`, but the service has the model: it samples the answers and trains a LoRA adapter, and this
    machine plays the environment, computes the advantages and measures. The plan is printed first, and
    nothing is called before you agree to it. The key comes from TINKER_API_KEY. Ctrl-C stops the waiting, not
    the training, whose local process continues; `trajkit jobs resume` resumes a killed one after its last
    iteration.

    Args:
        model: Model to start from, by its name at the service, such as `Qwen/Qwen3-8B`.

    Raises:
        RequestError: The service costs money and was not confirmed, there is no key, a value is invalid, a
            seed to learn from is reserved, or one to measure with is not.
        ServiceError: The service refused, or cannot be reached.
        TrainingError: Nothing can be learned.
    """
    from trajkit._core.lazy import need
    from trajkit.training.local.running.launch import start
    from trajkit.training.rl.prepare import TinkerRequest, prepare_tinker
    from trajkit.training.rl.tinker import URL_VARIABLE, check_key
    from trajkit.training.runs import Runs

    runs = Runs(Path(options["runs"]))
    given = _fields(options, TinkerRecipe)
    given["base_url"] = options["base_url"] or os.environ.get(URL_VARIABLE, "")
    if not options["env"]:
        raise RequestError("no --env is given", hint="--env babyai")
    wanted = recipe(TinkerRecipe, nested(options["set"], given))
    if not options["dry_run"]:
        need("tinker", extra="tinker")
        check_key()
    request = TinkerRequest(base=model, recipe=wanted, **picked(options, ("tokenizer", "chat_template")))
    prepared = prepare_tinker(request, runs, name=options["name"])
    if not (is_open() or options["dry_run"] or options["yes"] or is_under_way(prepared.job)):
        forget(prepared, runs)
        raise RequestError(
            f"{_where(wanted)} samples and trains, which costs money",
            hint="yes=True confirms it, dry_run=True only shows the plan",
        )
    return carry_out(
        prepared,
        runs,
        options,
        plan=_tinker_plan(prepared),
        question="Play, and pay the service for sampling and training?",
        nothing="the service was not called",
        start=start,
        n_steps=prepared.recipe.iterations,
    )


def _fields(options: Mapping[str, Any], kind: type[PlayedRecipe]) -> dict[str, Any]:
    """The fields of a recipe from the options, with what is played."""
    return {**given_fields(options, kind), "play": {**given_fields(options, WorldRecipe), **_world(options)}}


def _world(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is played, from the options whose names or defaults are others in the recipe."""
    settings = project()
    found: dict[str, Any] = {
        "env": options["env"] or "",
        "env_settings": texts(options["env_set"]),
        "policy_settings": texts(options.get("policy_set")),
        "tasks": many(options["task"]),
    }
    config = options["config"] or (settings.config if options["variant"] else None)
    if config:
        found |= {"config": str(config), "function": options["function"] or settings.function or "act"}
    return found


def _plan(prepared: PreparedRl) -> Iterator[str]:
    job, found = prepared.job, prepared.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    if job.train is not None:
        yield from _logged_lines(job.train, prepared)
    yield from _played_lines(found, is_played=job.train is None)
    yield from weight_lines(job.base, found, prepared.sizes)
    yield _steps_line(found)
    yield "time      not known: it depends on the episodes; the first iteration shows it"
    if found.report_to == "wandb":
        yield "reports   Weights & Biases: every measurement and the recipe, over the network"
    yield "price     none: it runs on this machine"


def _tinker_plan(prepared: PreparedTinker) -> Iterator[str]:
    job, found, reading = prepared.job, prepared.recipe, prepared.reading
    if not prepared.is_new:
        from trajkit.training.rl.tinker import Progress

        n_done = Progress.model_validate(job.remote).n_done
        yield f"job {job.job_id} is the same: {job.status}, {plural(n_done, 'iteration')} learned"
    yield from _played_lines(found, is_played=True)
    yield f"model     {job.base} at {_where(found)}: an adapter of rank {found.r}"
    yield f"{_steps_line(found)}, loss {found.loss_fn}"
    yield (
        f"tokens    {plural(reading.n_episodes, 'episode')}; a step reads {count(reading.n_prompt)} tokens at"
        f" first, more with its history, and samples up to {count(found.play.max_new_tokens)}"
    )
    if reading.most_steps is not None:
        n_steps = reading.n_episodes * reading.most_steps
        n_read, n_drawn = n_steps * reading.n_prompt, n_steps * found.play.max_new_tokens
        yield (
            f"          with {plural(reading.most_steps, 'step')} in each, the most: {count(n_steps)} steps,"
            f" about {count(n_read)} tokens read and up to {count(n_drawn)} sampled"
        )
    times = "" if found.epochs == 1 else f" {found.epochs} times"
    yield f"          what an iteration plays is trained on{times}, prompts included"
    yield "price     not known here: the service's price for each of these, and for keeping checkpoints"


def _where(found: TinkerRecipe) -> str:
    return found.base_url or "Tinker"


def _steps_line(found: RlRecipe | TinkerRecipe) -> str:
    return (
        f"steps     {count(found.iterations * found.n_updates)} of the optimizer by {found.algorithm},"
        f" {found.n_updates} in each iteration, learning rate {found.learning_rate:g}"
    )


def _played_lines(found: PlayedRecipe, *, is_played: bool) -> Iterator[str]:
    """What is played and measured, and how the model is called."""
    world = found.play
    if is_played:
        yield (
            f"played    {world.env} {', '.join(world.tasks)}, seeds {world.seeds}:"
            f" {plural(found.iterations, 'iteration')} of"
            f" {plural(found.n_groups, 'group')} of {plural(found.num_generations, 'attempt')}"
        )
    prompts = world.policy or (
        f"{world.function}/{world.variant} of {near(Path(world.config))}" if world.config else "trajkit's own"
    )
    if world.env:
        yield f"prompts   {prompts}"
        yield f"answers   up to {world.max_new_tokens} tokens, sampled at temperature {world.temperature:g}"
    if world.eval_seeds:
        often = plural(found.eval_every, "iteration")
        yield f"measured  seeds {world.eval_seeds} of every task, every {often}"
    else:
        yield "measured  nothing: the last checkpoint is kept, not the best"
        if world.env:
            yield f"          `trajkit reserve {world.env} --seeds 10000:10032` keeps some seeds for that"
        else:
            yield "          --env ENVIRONMENT plays the held-out seeds"


def _logged_lines(data: JobData, prepared: PreparedRl) -> Iterator[str]:
    """What a store has to learn, and how far the model is from the policy that played it."""
    found = prepared.recipe
    yield (
        f"learned   {near(data.store)}  {plural(data.n_episodes, 'episode')}  {plural(data.n_rows, 'step')}:"
        f" {plural(found.iterations, 'iteration')} of {plural(found.seeds_per_iteration, 'group')}"
    )
    for reason, number in data.left.items():
        yield f"          not learned: {count(number)} {reason}"
    if (far := prepared.distance) is not None:
        yield (
            f"distance  effective sample size {far.effective:.1%} of {plural(far.n_steps, 'step')},"
            f" KL divergence {far.kl:.3g} nats a token, {far.stale:.1%} of the steps too stale"
        )
