"""Play variants on the same held-out worlds, and say how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit.commands.place import Many, Place, Settings, many, path_or_none, texts
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.contenders import Contender
    from trajkit.commands.rollout import Rollout
    from trajkit.commands.stage import Actions
    from trajkit.evaluation.evaluation import Evaluation
    from trajkit.evaluation.report_object import Report
    from trajkit.registry.lineage import Lineage
    from trajkit.rollouts.session import Session

GATEWAY, PROCESS = "gateway", "process"


@dataclass(frozen=True)
class Evaluated:
    """How variants did on held-out worlds; after a dry run only what it would take."""

    rollout: Rollout
    """What was played."""
    leaks: tuple[str, ...] = ()
    """What was not held out, where that was allowed."""
    unsure: tuple[str, ...] = ()
    """What nobody knows of the models behind the variants."""
    other_prompts: tuple[str, ...] = ()
    """Which models are given other prompts than they learned."""
    is_reserved: bool = False
    """Whether the project keeps every world for evaluation."""
    report: Report | None = None
    """How the variants did, and how they differ; None after a dry run, or where nothing was played."""

    def _repr_html_(self) -> str | None:
        return None if self.report is None else self.report._repr_html_()


def evaluate(
    env_id: str,
    *,
    variants: Many,
    seeds: str,
    env_set: Settings | None = None,
    task: Many = (),
    decoding: Many = ("config",),
    through: Literal["gateway", "process"] | None = None,
    model: str | None = None,
    template_variant: str | None = None,
    policy_set: Settings | None = None,
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
    allow_leak: bool = False,
    output: Place | None = None,
    new_run: bool = False,
    dry_run: bool = False,
    yes: bool = False,
) -> Evaluated:
    """Compare variants on held-out seeds of an environment.

    What is finished is kept: the same call again plays only what is missing. Options that are not told of
    here are those of `rollout`.

    Args:
        env_id: The environment.
        variants: What is compared, the baseline first: names, or NAME=MODEL.
        seeds: Of every task: `A:B`, `A:B:STEP`, `1,5,9`, or a file of them.
        env_set: Settings of the environment.
        task: Tasks, or games; none for all.
        decoding: The same for all: `greedy`, `temperature=1`, or `config`; each gives a comparison.
        through: The gateway, or this process; None for process where a model is named.
        model: In process: the model of every variant that names none.
        template_variant: In process: whose prompts a model gets that is no variant itself.
        policy_set: In process: settings of the models.
        history: As in `rollout`.
        max_steps: As in `rollout`.
        run_seed: As in `rollout`.
        concurrency: As in `rollout`.
        timeout: As in `rollout`.
        episode_timeout: As in `rollout`.
        retries: As in `rollout`.
        max_calls: As in `rollout`.
        max_cost_usd: As in `rollout`.
        max_minutes: As in `rollout`.
        input_price: As in `rollout`.
        output_price: As in `rollout`.
        function: As in `rollout`.
        config: As in `rollout`.
        runs: The folder where jobs are kept.
        allow_leak: Play also what a model has learned; the result says so.
        output: The store to write; None for one in the folder of stores.
        new_run: Play everything anew.
        dry_run: Play nothing, and say what it may cost.
        yes: Ask models that cost money.

    Raises:
        RequestError: A model has learned these worlds, or something cannot be played as asked.
        ServiceError: The gateway, its database or the model is down.
    """
    from trajkit.commands.rollout import Rollout, refuse_unpaid
    from trajkit.evaluation.report import report as report_of

    asked = {
        "env_id": env_id,
        "env_settings": texts(env_set),
        "tasks": many(task),
        "seeds": seeds,
        "decodings": many(decoding),
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
        "policy_settings": texts(policy_set),
        "store": path_or_none(output),
        "new_run": new_run,
    }
    found = prepared(
        many(variants),
        asked,
        Path(runs),
        through=through,
        model=model,
        template_variant=template_variant,
        allow_leak=allow_leak,
    )
    exposure = found.exposure
    leaks, unsure = tuple(map(str, exposure.overlaps)), tuple(map(str, exposure.unsure))
    if dry_run:
        played = Rollout(found.session.estimate())
        return Evaluated(played, leaks, unsure, found.other_prompts, found.is_reserved)
    refuse_unpaid(found.session, yes=yes)
    done = _play(found)
    report = None if done.path is None else report_of(str(done.path))
    return Evaluated(done, leaks, unsure, found.other_prompts, found.is_reserved, report)


def prepared(
    variants: Sequence[str],
    asked: dict[str, Any],
    runs_folder: Path,
    *,
    through: str | None,
    model: str | None,
    template_variant: str | None,
    allow_leak: bool,
) -> Evaluation:
    """An evaluation that can begin.

    Args:
        variants: As they were typed, with commas between them.
        asked: Options of the rollout, by the names of their fields.
        runs_folder: Where jobs are kept.
        through: `gateway` or `process`; None for process where a model is named.
        model: The model of every variant that names none.
        template_variant: Whose prompts a model gets that is no variant itself.
        allow_leak: Play also what a model has learned.

    Raises:
        RequestError: Options do not go together, or a model has learned these worlds.
    """
    from trajkit.commands.contenders import lineage_in, typed

    contenders = typed(variants, model)
    known = lineage_in(runs_folder)
    where = through or (PROCESS if any(one.model is not None for one in contenders) else GATEWAY)
    if where == GATEWAY:
        in_process = {
            "--model": model,
            "--template-variant": template_variant,
            "--policy-set": asked.pop("policy_settings"),
        }
        return _through_gateway(contenders, known, asked, in_process, allow_leak)
    return _in_process(contenders, known, asked, runs_folder, template_variant, allow_leak)


def _through_gateway(
    contenders: Sequence[Contender],
    known: Lineage,
    asked: dict[str, Any],
    in_process: dict[str, Any],
    allow_leak: bool,
) -> Evaluation:
    from trajkit.commands.contenders import models_behind
    from trajkit.commands.stage import Stage
    from trajkit.evaluation.evaluation import evaluation

    named = next((one for one in contenders if one.model is not None), None)
    if named is not None and in_process["--model"] is None:
        raise RequestError(
            f"{named.name}={named.model} names a model, and the gateway plays what its configuration says",
            hint="--through process, or the names of variants alone",
        )
    for option, value in in_process.items():
        if value:
            raise RequestError(f"{option} is for models in this process", hint="--through process")
    session = _session(asked, variants=tuple(one.name for one in contenders))
    venue, function = session.venue, session.function_name
    if venue is not None and venue.described_by is not None and function is not None:
        Stage(venue.described_by, function, ()).refuse_foreign(asked["env_id"], _actions(asked))
    behind = models_behind(session, known)
    return evaluation(session, seen=behind.seen, models=behind.models, allow_leak=allow_leak)


def _in_process(
    contenders: Sequence[Contender],
    known: Lineage,
    asked: dict[str, Any],
    runs_folder: Path,
    template_variant: str | None,
    allow_leak: bool,
) -> Evaluation:
    from trajkit.commands.local_contenders import cast_of
    from trajkit.commands.stage import find_stage
    from trajkit.evaluation.evaluation import evaluation

    stage = find_stage(asked.pop("config_file"), asked.pop("function"))
    cast = cast_of(
        contenders,
        known,
        stage,
        env_id=asked["env_id"],
        actions=_actions(asked),
        runs_folder=runs_folder,
        template_variant=template_variant,
        settings=asked.pop("policy_settings"),
    )
    session = _session(asked, policy="local", players=cast.players)
    behind = cast.behind
    return evaluation(
        session,
        seen=behind.seen,
        models=behind.models,
        other_prompts=behind.other_prompts,
        allow_leak=allow_leak,
    )


def _actions(asked: Mapping[str, Any]) -> Actions:
    from trajkit.commands.stage import first_actions

    settings = asked.get("env_settings") or {}
    return lambda: first_actions(asked["env_id"], settings, asked.get("tasks") or (), asked["seeds"])


def _session(asked: dict[str, Any], **more: Any) -> Session:
    from trajkit.commands.rollout import checked
    from trajkit.rollouts.session import prepare

    given = {name: value for name, value in asked.items() if value not in (None, (), {})}
    return prepare(checked({**given, **more, "purpose": "eval"}))


def _play(found: Evaluation) -> Rollout:
    from trajkit.commands.rollout import play_run
    from trajkit.environments.quiet import kept_stdout
    from trajkit.evaluation.evaluation import with_store
    from trajkit.rollouts.session import open_run

    with open_run(found.session) as run, kept_stdout():
        run.session = with_store(run)
        return play_run(run)
