"""Prepare reinforcement learning: find, check and record everything; nothing is played."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit._core.secrets import names_a_secret
from trajkit._core.seeds import Seeds, as_seeds
from trajkit._core.settings import Reservation, refuse_reserved, reserved
from trajkit.curation.leaks.leak import leak
from trajkit.environments import typed_environment
from trajkit.environments.base import step_limit
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.model import LocalModel
from trajkit.models.generation.row import rows
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.plan import chosen
from trajkit.schema import Model
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.training.hosted.answer import checked_address
from trajkit.training.job import LOCAL, TINKER, TuneJob, key_of
from trajkit.training.local.arguments import check_optimizer, check_reports
from trajkit.training.local.base_model import Sizes, measured, settled
from trajkit.training.local.outcome.finish import TOKENIZER
from trajkit.training.local.recipe import deciding
from trajkit.training.local.running.replicas import check_replicas
from trajkit.training.local.tokens.template import save_tokenizer, spelled
from trajkit.training.new_job import Written, prepared_job
from trajkit.training.origin import Origin, origin_of
from trajkit.training.rl.offline import Distance, Logged
from trajkit.training.rl.play import Stage, player_of, sources_of
from trajkit.training.rl.recipe import PlayedRecipe, RlRecipe, TinkerRecipe, WorldRecipe
from trajkit.training.runs import Runs

_DECIDING = ("torch", "transformers", "peft", "accelerate", "tokenizers", "numpy")
HELD_OUT = "held_out.json"
"""Initial states of the reserved worlds, in the folder of a job."""
_USUAL_HELD_OUT = 32
"""Default number of reserved seeds in an evaluation."""


class RlRequest(Model):
    """A training job to prepare."""

    base: str
    """Folder or id of the model."""
    recipe: RlRecipe
    """Settings of the training."""
    store: Path | None = None
    """Store of logged episodes to learn from instead of playing."""
    tokenizer: str | None = None
    """Folder or id of a tokenizer that replaces the model's own."""
    chat_template: str | None = None
    """Chat template that replaces the tokenizer's own: `chatml`, `plain`, or a file."""


class PreparedRl(NamedTuple):
    """A job that can be started."""

    job: TuneJob
    """The saved job."""
    recipe: RlRecipe
    """The recipe with every field filled in."""
    sizes: Sizes
    """Size of the model, and the number of trained weights."""
    is_new: bool
    """False if the same job existed already; then it is this job."""
    distance: Distance | None = None
    """Distance of the model from the policy that played logged episodes; None if the model plays itself, for
    awr, and for a job that existed already."""


def prepare_rl(request: RlRequest, runs: Runs, *, name: str | None = None) -> PreparedRl:
    """Write a job. Nothing is started.

    The same model and recipe give the same job, which is then found instead of created.

    Args:
        request: The job to prepare.
        runs: Folder of the jobs.
        name: Name of the job; None for one made of the model and the environment.

    Raises:
        RequestError: A training seed is reserved, a held-out seed is not, or there is no such environment,
            task, model, function or variant.
        DataError: Logged episodes cannot be learned: they leak, lack required values, or the model is too far
            from the policy that played them.
        ConfigError: The configuration is invalid.
        MissingExtra: A package is not installed.
    """
    recipe = request.recipe
    check_reports(recipe)
    check_optimizer(recipe)
    check_replicas(recipe, "rl")
    base, data, report = settled(request.base), None, None
    if request.store is not None:
        report = leak(request.store).checked()
        data = open_dataset(request.store)
    if recipe.play.env:
        recipe = recipe.model_copy(update={"play": _settled_world(recipe)})
        player_of(base, recipe.play)
    elif data is None:
        raise RequestError("neither --env nor --from is given", hint="--env babyai, or --from STORE")
    said = request.model_dump(mode="json", include={"tokenizer"})
    sizes = measured(base, recipe)
    recipe = recipe.of_size(sizes.n_weights)
    whole = recipe.model_dump(mode="json") | said | {"chat_template": spelled(request.chat_template)}
    digests = () if data is None else (data.store.manifest.digest,)
    key = key_of(target=LOCAL, method="rl", base=base, recipe=deciding(whole), digests=digests)
    distance: Distance | None = None

    def write(folder: Path) -> Written:
        nonlocal distance
        template = save_tokenizer(
            base, folder / TOKENIZER, tokenizer=request.tokenizer, template=request.chat_template
        )
        logged = None if data is None else Logged(data, template.digest, recipe)
        if logged is not None and recipe.algorithm != "awr":
            distance = logged.distance(base, template)
            distance.check()
        _write_held_out(folder, recipe.play)
        return Written(None if logged is None else logged.facts)

    job, is_new = prepared_job(
        runs,
        write,
        name=name,
        data=request.store or Path(recipe.play.env_name),
        origin=lambda: _origin(recipe.play, data),
        leak=report,
        packages=_DECIDING,
        key=key,
        target=LOCAL,
        method="rl",
        base=base,
        recipe=whole,
    )
    return PreparedRl(job, recipe, sizes, is_new, distance)


class TinkerRequest(Model):
    """A job to prepare for a service with Tinker's API."""

    base: str
    """The model, as the service names it."""
    recipe: TinkerRecipe
    """Settings of the training."""
    tokenizer: str | None = None
    """Folder or id of the model's tokenizer; None for the model's name as the id."""
    chat_template: str | None = None
    """`chatml`, `plain`, or a file; None for the tokenizer's own."""


class Reading(NamedTuple):
    """The expected use of a model at a service."""

    n_episodes: int
    """Episodes of all iterations and measurements."""
    n_prompt: int
    """Tokens of the longest first prompt of a task."""
    most_steps: int | None
    """Maximum steps per episode; None if the environment states no limit."""


class PreparedTinker(NamedTuple):
    """A job that can be started and costs money."""

    job: TuneJob
    """The saved job."""
    recipe: TinkerRecipe
    """The recipe with every field filled in."""
    reading: Reading
    """The expected use, in episodes, tokens and steps."""
    is_new: bool
    """False if the same job existed already; then it is this job."""


def prepare_tinker(request: TinkerRequest, runs: Runs, *, name: str | None = None) -> PreparedTinker:
    """Write a job. Nothing is started, and the service is not called.

    Args:
        request: The job to prepare.
        runs: Folder of the jobs.
        name: Name of the job; None for one made of the model and the environment.

    Raises:
        RequestError: A training seed is reserved, a held-out seed is not, or there is no such environment,
            task, tokenizer, function or variant.
        ConfigError: The configuration is invalid.
        MissingExtra: A package is not installed.
    """
    base = request.base
    recipe = request.recipe.model_copy(update={"play": _settled_world(request.recipe)})
    if recipe.base_url:
        checked_address(recipe.base_url)
    player_of(base, recipe.play)
    given = {"tokenizer": request.tokenizer, "chat_template": spelled(request.chat_template)}
    whole = recipe.model_dump(mode="json") | given
    key = key_of(target=TINKER, method="rl", base=base, recipe=whole, digests=())
    reading: Reading | None = None

    def write(folder: Path) -> Written:
        nonlocal reading
        template = save_tokenizer(
            base, folder / TOKENIZER, tokenizer=request.tokenizer, template=request.chat_template
        )
        reading = _reading(base, recipe, template)
        _write_held_out(folder, recipe.play)
        return Written(None)

    job, is_new = prepared_job(
        runs,
        write,
        name=name,
        data=Path(recipe.play.env_name),
        origin=lambda: _origin(recipe.play, None),
        leak=None,
        packages=("tinker", "transformers", "tokenizers", "numpy"),
        key=key,
        target=TINKER,
        method="rl",
        base=base,
        recipe=whole,
    )
    if reading is None:
        reading = _reading(base, recipe, ChatTemplate(str(runs.path(job.job_id) / TOKENIZER)))
    return PreparedTinker(job, recipe, reading, is_new)


def _reading(base: str, recipe: TinkerRecipe, template: ChatTemplate) -> Reading:
    """Estimate the use from the first prompt of each task, which is rendered but not sent."""
    play = recipe.play
    lengths: list[int] = []

    def answer(model: LocalModel, asks: Sequence[Ask]) -> list[Said | Exception]:
        lengths.extend(len(row.prompt) for row in rows(model, asks))
        return [Faulty(Fault(FaultKind.REFUSED, "only the prompt was wanted", is_lasting=True)) for _ in asks]

    one = recipe.model_copy(update={"num_generations": 1, "seeds_per_iteration": 1})
    with contextlib.closing(Stage(base, one, template, answer)) as stage:
        stage.attempts(None, 0)
    n_measured = 0
    if play.eval_seeds:
        n_times = 1 + math.ceil(recipe.iterations / recipe.eval_every)
        n_measured = n_times * len(play.tasks) * len(as_seeds(play.eval_seeds))
    n_played = recipe.iterations * recipe.n_groups * recipe.num_generations
    return Reading(n_played + n_measured, max(lengths), play.max_episode_steps or _most_steps(stage, play))


def _most_steps(stage: Stage, world: WorldRecipe) -> int | None:
    """Return the largest step limit of the tasks, as the environment gives it."""
    info, limits = typed_environment(world.env, world.env_settings), []
    for task in world.tasks:
        environment = info.make(task)
        environment.reset(stage.seeds(0)[0])
        limits.append(step_limit(environment))
        environment.close()
    return max((limit for limit in limits if limit is not None), default=None)


def _write_held_out(folder: Path, world: WorldRecipe) -> None:
    states = sorted(state for each in _reservations(world) for state in each.states)
    (folder / HELD_OUT).write_text(json.dumps(states), encoding="utf-8")


def _origin(world: WorldRecipe, data: Dataset | None) -> Origin:
    """Return the origin of the learned steps: of those in the store, or of those that will be played."""
    if data is not None:
        return origin_of(data)
    return Origin(*((name,) if name else () for name in (world.function, world.variant)))


def _settled_world(recipe: PlayedRecipe) -> WorldRecipe:
    """Return what is played with all tasks, seeds and paths filled in, and check it against reservations."""
    world = recipe.play
    if secret := next(filter(names_a_secret, world.env_settings), None):
        raise RequestError(
            f"the setting {secret} looks like a secret, and the record of a job keeps the settings",
            hint="let the environment read it from a variable",
        )
    info = typed_environment(world.env, world.env_settings)
    tasks = chosen(world.tasks or ("all",), info.tasks, noun="task", of=world.env)
    for task in tasks:
        info.make(task).close()
    world = world.model_copy(
        update={
            "tasks": tasks,
            "env_name": info.env_id,
            "config": str(Path(world.config).resolve()) if world.config else "",
            "folder": str(Path.cwd()),
        }
    )
    world = world.model_copy(update={"sources": sources_of(world)})
    kept = _reservations(world)
    held_out = _held_out(world, kept)
    if world.seeds:
        seeds = as_seeds(world.seeds)
        refuse_reserved(info.env_id, tasks, seeds)
        if held_out is not None and (both := seeds.first_shared(held_out)) is not None:
            raise RequestError(
                f"seed {both} is both a training seed and a held-out seed", hint="choose other --seeds"
            )
    else:
        taken = {
            seed for some in (*(each.seeds for each in kept), *filter(None, [held_out])) for seed in some
        }
        free = (seed for seed in itertools.count() if seed not in taken)
        seeds = as_seeds(itertools.islice(free, recipe.iterations * recipe.seeds_per_iteration))
    return world.model_copy(
        update={"seeds": str(seeds), "eval_seeds": "" if held_out is None else str(held_out)}
    )


def _reservations(world: WorldRecipe) -> list[Reservation]:
    """Return the project's reservations for the environment and tasks that are played."""
    return [each for each in reserved() if each.env == world.env_name and set(each.tasks) & set(world.tasks)]


def _held_out(world: WorldRecipe, kept: Sequence[Reservation]) -> Seeds | None:
    """Return the held-out seeds: the given ones, else the first that are reserved for every task."""

    def is_kept(seed: int) -> bool:
        return all(any(task in each.tasks and each.seeds.has(seed) for each in kept) for task in world.tasks)

    if not world.eval_seeds:
        seeds_kept = sorted({seed for each in kept for seed in each.seeds})
        found = list(itertools.islice(filter(is_kept, seeds_kept), _USUAL_HELD_OUT))
        return as_seeds(found) if found else None
    seeds = as_seeds(world.eval_seeds)
    free = next((seed for seed in seeds if not is_kept(seed)), None)
    if free is not None:
        raise RequestError(
            f"seed {free} of {world.env_name} is not reserved for every task: episodes of it may be learned",
            hint=f"trajkit reserve {world.env} --seeds {world.eval_seeds}",
        )
    return seeds
