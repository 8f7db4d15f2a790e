"""Play variants on the same held-out worlds or prompts, and report how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.output import console
from trajkit._core.output.console import Cell, count, line, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.group import engine_of, flattened
from trajkit.commands.options.playing import PlayingOptions, fields_of
from trajkit.commands.options.request import checked
from trajkit.commands.options.types import Columns, Many, Option, StoreLike, many
from trajkit.commands.place import path_or_none
from trajkit.commands.play.played import Rollout, planned
from trajkit.commands.play.playing import confirm, play, shards_of
from trajkit.commands.play.vllm import refuse_vllm_options, vllm_of
from trajkit.errors import RequestError, TrajkitError
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.stack.vllm_command import VLLM

if TYPE_CHECKING:
    from trajkit.commands.comparison.contenders import Behind, Contender
    from trajkit.commands.comparison.prompts import Replayed
    from trajkit.commands.play.stage import Actions
    from trajkit.engines.engine import Engine
    from trajkit.evaluation.estimates.compare import Comparison
    from trajkit.evaluation.evaluation import Evaluation
    from trajkit.evaluation.reports.object import Report
    from trajkit.evaluation.reports.text import Table
    from trajkit.registry.lineage import Lineage
    from trajkit.rollouts.session import Session

GATEWAY, PROCESS, IN_VLLM = "gateway", "process", "vllm"
_LENGTH = "n_steps"
_MOSTLY = 0.5
"""Share of answers without an action from which a note is printed."""


@dataclass(frozen=True, repr=False)
class Evaluated(Result):
    """Results of variants on held-out worlds; after a dry run only the plan."""

    evaluation: Evaluation
    """What was compared, and how far the worlds were held out."""
    rollout: Rollout
    """What was played."""
    report: Report | None = None
    """Results of the variants, and their differences; None after a dry run, or if nothing was played."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """What was not held out, if that was allowed."""
        return tuple(map(str, self.evaluation.exposure.overlaps))

    @property
    def unsure(self) -> tuple[str, ...]:
        """What is unknown about the models behind the variants."""
        return tuple(map(str, self.evaluation.exposure.unsure))

    @property
    def other_prompts(self) -> tuple[str, ...]:
        """Models that get other prompts than those they learned."""
        return self.evaluation.other_prompts

    @property
    def is_reserved(self) -> bool:
        """Whether the project keeps every world for evaluation."""
        return self.evaluation.is_reserved

    @property
    def exit_code(self) -> int:
        """That of the rollout."""
        return self.rollout.exit_code

    @property
    def failure(self) -> TrajkitError | None:
        """That of the rollout."""
        return self.rollout.failure

    def to_json(self) -> dict[str, Any]:
        """The plan after a dry run; else every measure of each variant and task, and the differences."""
        plan, found = self.rollout.session.plan, self.report
        if self.rollout.estimate is not None:
            return self.rollout.to_json()
        groups = [] if found is None else [group.model_dump(mode="json") for group in found.groups]
        differences = [] if found is None else [each.model_dump(mode="json") for each in found.comparisons]
        return {
            "store": None if self.rollout.path is None else str(self.rollout.path),
            "run": plan.run,
            "env": plan.env_name or plan.env_id,
            "tasks": list(plan.tasks),
            "seeds": str(plan.seeds),
            **self.evaluation.session.remarks,
            **self.rollout.served,
            "n_planned": self._n_planned,
            "groups": [{**group, "n_missing": self._n_planned - group["n_episodes"]} for group in groups],
            "comparisons": differences,
            "notes": [] if found is None else list(found.notes),
        }

    def print_text(self) -> None:
        """Print the tables or the plan, then the notes."""
        if text := str(self):
            console.result_text(text)
        self._tell()

    def print_json(self) -> None:
        """Print one document, then the notes."""
        console.result_json(self.to_json())
        self._tell()

    def _tell(self) -> None:
        if self.rollout.estimate is not None:
            self.rollout.tell()
        for note in () if self.report is None else _notes(self.report):
            talk(f"note: {note}")

    def __str__(self) -> str:
        if self.report is None:
            return "" if self.rollout.estimate is None else str(self.rollout)
        from trajkit.evaluation.reports.text import difference_table, group_table

        groups = group_table(self.report)
        missing = [count(self._n_planned - group.n_episodes) for group in self.report.groups]
        rows = [(*row, n) for row, n in zip(groups.rows, missing, strict=True)]
        texts = [shown_table(groups._replace(headings=(*groups.headings, "missing"), rows=rows))]
        if self.report.comparisons:
            texts += ["", shown_table(difference_table(_shown(self.report)))]
        return "\n".join((*texts, *(line(f"not held out: {leak}") for leak in self.leaks)))

    def __repr__(self) -> str:
        return repr(self.rollout).replace("<rollout", "<evaluation", 1)

    def _repr_html_(self) -> str:
        return self.rollout._repr_html_() if self.report is None else self.report._repr_html_()

    @property
    def _n_planned(self) -> int:
        """Episodes of each variant with each decoding."""
        plan = self.rollout.session.plan
        return plan.n_jobs // (len(plan.variants) * max(1, len(plan.decodings)))


def shown_table(shown: Table) -> str:
    """A table of a report as text."""
    columns = [Cell(name, is_number=place >= shown.n_text) for place, name in enumerate(shown.headings)]
    return table_text(columns, shown.rows)


def _shown(found: Report) -> list[Comparison]:
    """Differences of success, return and length."""
    return [each for each in found.comparisons if each.metric in (*found.measures[:2], _LENGTH)]


@flattened(Options)
def evaluate(
    env_id: Annotated[str | None, Option(metavar="ENVIRONMENT")] = None,
    *,
    variants: Annotated[Many, Option(metavar="A,B,…")],
    seeds: Annotated[str | None, Option(metavar="SEEDS")] = None,
    prompts: Annotated[StoreLike | None, Option(metavar="STORE")] = None,
    scorer: Annotated[str | None, Option(metavar="SCORER")] = None,
    steps: Literal["last", "all"] = "last",
    by: Columns = (),
    decoding: Annotated[Many, Option(metavar="HOW")] = (),
    through: Literal["gateway", "process", "vllm"] | None = None,
    model: Annotated[str | None, Option(metavar="MODEL")] = None,
    policy: Annotated[str | None, Option(metavar="MODULE:NAME")] = None,
    model_url: Annotated[str | None, Option(metavar="URL")] = None,
    template_variant: Annotated[str | None, Option(metavar="VARIANT")] = None,
    allow_leak: bool = False,
    **options: Unpack[PlayingOptions],
) -> Evaluated | Replayed:
    """Compare variants on held-out seeds of an environment, or on held-out prompts of a store.

    Variants are those of a function, played through the gateway as `trajkit rollout` finds it. Or they are
    local models, played in this process without a gateway: NAME=MODEL, where MODEL is a job, the folder of a
    model or of an adapter, the id of a model, or sample:tiny-base. In process, a variant that names no model
    is one that `trajkit register` added, and its model is found by name. Prompts are those of the
    configuration (--config, else that of trajkit.toml, else the local stack's): of the variant itself, else
    those of --template-variant, else those that the tuned models learned. Without a configuration a model
    gets trajkit's own prompt. With --through vllm the same models run in a vLLM of your environment, which is
    started for this or runs at --model-url.

    With --policy your own agent plays, once with each model, so that the models are measured with the prompts
    of your code. The calls of turn.chat that name no model are answered by local models, NAME=MODEL as above;
    with --model-url by the models of those names at an OpenAI-compatible server.

    All variants play the same tasks and seeds. Seeds that a compared model has learned, or was chosen by, are
    refused: what it learned is known for the jobs under --runs and for registered models.

    With --prompts no environment is needed: models answer the prompts of logged steps, and a function of your
    own scores each answer, a check or a judge. Models are NAME=MODEL as above, local or at --model-url; the
    scorer is called with the messages of the prompt, the answer (a message) and the logged step, and returns
    True or False, a number, or None if it has no score:

        def is_brief(prompt, answer, step):
            return len(answer.text) < 200

    Prompts of episodes that a compared model has learned, or that read the same, are refused. Intervals are
    over prompts; with --by over groups of them, such as customers. Answers are greedy by default
    (--decoding), and --policy-set max_tokens=300 sets a field of each request.

    Every inference and feedback is marked as evaluation, so that exports leave it out. Finished episodes are
    kept: the same command again plays only what is missing, after Ctrl-C, a crash, a limit or a dead server.
    The exit codes are those of `trajkit rollout`.

    Args:
        env_id: The environment, such as `babyai`.
        variants: The variants that are compared, the baseline first: names, or NAME=MODEL. May be repeated.
        seeds: Seeds of every task: A:B (A to B-1), A:B:STEP, 1,5,9, or a file of them.
        prompts: The store whose prompts are answered, in place of an environment.
        scorer: With --prompts: the function that scores an answer, my.py:fn or my_pkg.module:fn.
        steps: With --prompts: answer the last prompt of each episode, or all.
        by: With --prompts: columns or tags.NAME whose prompts belong together. Default: the episode.
        decoding: How answers are sampled, the same for all: greedy, temperature=1, temperature=0.7,top_p=0.9,
            or config, as the variant is configured. If repeated, each gives a comparison. Default: config;
            greedy with --prompts.
        through: The gateway, this process, or a vLLM. Default: process if a model is named.
        model: In process: the model of every variant that names none.
        policy: Your own agent, which plays with each of the models, such as my_pkg.agent:MyAgent.
        model_url: With --policy or --prompts: the OpenAI-compatible server of the models. Default: this
            process. With --through vllm: a running vLLM. Default: one is started.
        template_variant: In process: the prompts of this variant, for models that are not variants.
        allow_leak: Also play worlds that a model has learned; the result names them.

    Raises:
        RequestError: A model has learned these worlds, or something cannot be played as requested.
        ServiceError: The gateway, its database or the model is down.

    Example:
        trajkit evaluate babyai --variants baseline,history --seeds 200:220
        trajkit evaluate babyai --variants base=sample:tiny-base,tuned=JOB --seeds 200:220 --decoding greedy
        trajkit evaluate babyai --policy my_pkg.agent:MyAgent --variants base=MODEL,tuned=JOB --seeds 200:220
        trajkit evaluate --prompts stores/val --scorer checks.py:is_brief --variants before=MODEL,tuned=JOB
    """
    from trajkit.commands.comparison.contenders import lineage_in, typed

    if prompts is not None:
        from trajkit.commands.comparison.prompts import replay

        played = {
            "ENVIRONMENT": env_id,
            "--seeds": seeds,
            "--policy": policy,
            "--through": through,
            "--template-variant": template_variant,
            "--config": options["config"],
            "--function": options["function"],
            "--task": options["task"],
            "--env-set": options["env_set"],
            "--on": options["on"],
            "--workers": options["workers"],
            "--vllm-command": options["vllm_command"] != VLLM,
        }
        for option, value in played.items():
            if value:
                raise RequestError(f"{option} is for an environment, and --prompts needs none")
        return replay(
            prompts,
            scorer,
            typed(many(variants), model),
            steps=steps,
            by=many(by),
            decodings=many(decoding),
            model_url=model_url,
            allow_leak=allow_leak,
            options=options,
        )
    if scorer is not None or many(by) or steps != "last":
        raise RequestError("--scorer, --steps and --by are for logged prompts", hint="--prompts STORE")
    if env_id is None or seeds is None:
        raise RequestError(
            "nothing to play is given: an environment and --seeds, or --prompts STORE and --scorer my.py:fn"
        )
    from trajkit.evaluation.evaluation import evaluation

    contenders = typed(many(variants), model)
    known, runs_folder = lineage_in(Path(options["runs"])), Path(options["runs"])
    fields = fields_of(
        env_id, {**options, "seeds": seeds, "decoding": decoding or "config", "model_url": model_url}
    )
    if model_url is not None and policy is None and through != IN_VLLM:
        raise RequestError(
            "--model-url is for the models of an agent, or for a vLLM",
            hint="--policy my_pkg.agent:MyAgent, or --through vllm",
        )
    if policy is not None and through == IN_VLLM:
        raise RequestError(
            "an agent calls models at --model-url", hint="`trajkit serve --engine vllm` prints the address"
        )
    if policy is not None:
        others = {
            "--template-variant": template_variant,
            "--through": through if through == GATEWAY else None,
        }
        session, behind = _of_agent(policy, contenders, known, fields, runs_folder, others)
    elif (
        through == IN_VLLM
        or (through or (PROCESS if any(one.model is not None for one in contenders) else GATEWAY)) == PROCESS
    ):
        kind = PolicyKind.VLLM if through == IN_VLLM else PolicyKind.LOCAL
        session, behind = _of_models(kind, contenders, known, fields, runs_folder, template_variant)
    else:
        others = {"--model": model, "--template-variant": template_variant}
        session, behind = _of_gateway(contenders, known, fields, others)
    found = evaluation(
        session,
        seen=behind.seen,
        models=behind.models,
        other_prompts=behind.other_prompts,
        allow_leak=allow_leak,
    )
    refuse_vllm_options(found.session.options, options["vllm_command"], options["on"])
    _tell(found)
    engine = engine_of(options)
    if options["dry_run"]:
        return Evaluated(found, planned(session))
    confirm(session, yes=options["yes"])
    return _played(found, engine, options["vllm_command"])


def _of_agent(
    policy: str,
    contenders: Sequence[Contender],
    known: Lineage,
    fields: dict[str, Any],
    runs_folder: Path,
    others: Mapping[str, Any],
) -> tuple[Session, Behind]:
    """An agent with each of several models; it has its own prompts, and takes none of the other options."""
    from trajkit.commands.comparison.local_contenders import agent_name, cast_of_models
    from trajkit.rollouts.preparation import shown_settings

    if ":" not in policy:
        raise RequestError(
            f"--policy {policy} is not an agent of your own",
            hint="--policy my_pkg.agent:MyAgent, or leave it out",
        )
    for option, value in {"--config": fields.get("config_file"), **others}.items():
        if value:
            raise RequestError(f"{option} is for the prompts of a gateway, and an agent has its own")
    cast = cast_of_models(
        contenders,
        known,
        agent=agent_name(policy, shown_settings(fields.get("policy_settings", {}))),
        is_here="model_url" not in fields,
        runs_folder=runs_folder,
    )
    return _session({**fields, "policy": policy, "players": cast.players}), cast.behind


def _of_models(
    kind: PolicyKind,
    contenders: Sequence[Contender],
    known: Lineage,
    fields: dict[str, Any],
    runs_folder: Path,
    template_variant: str | None,
) -> tuple[Session, Behind]:
    """Local models, with the prompts of a configuration or with trajkit's own."""
    from trajkit.commands.comparison.local_contenders import cast_of
    from trajkit.commands.play.stage import find_stage

    config = fields.pop("config_file", None)
    cast = cast_of(
        contenders,
        known,
        find_stage(path_or_none(config), fields.pop("function", None)),
        env_id=fields["env_id"],
        actions=_actions(fields),
        runs_folder=runs_folder,
        template_variant=template_variant,
        settings=fields.pop("policy_settings", {}),
        is_served=kind == PolicyKind.VLLM and "model_url" in fields,
    )
    return _session({**fields, "policy": kind.value, "players": cast.players}), cast.behind


def _of_gateway(
    contenders: Sequence[Contender], known: Lineage, fields: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[Session, Behind]:
    """The variants of a gateway's function, which take none of the other options."""
    from trajkit.commands.comparison.contenders import models_behind
    from trajkit.commands.play.stage import Stage

    named = next((one for one in contenders if one.model is not None), None)
    if named is not None and others["--model"] is None:
        raise RequestError(
            f"{named.name}={named.model} names a model, but the gateway plays its configured models",
            hint="--through process, or the names of variants alone",
        )
    for option, value in {**others, "--policy-set": fields.get("policy_settings")}.items():
        if value:
            raise RequestError(f"{option} is for models in this process", hint="--through process")
    session = _session({**fields, "variants": tuple(one.name for one in contenders)})
    venue, function = session.venue, session.function_name
    if venue is not None and venue.described_by is not None and function is not None:
        Stage(venue.described_by, function, ()).refuse_foreign(fields["env_id"], _actions(fields))
    return session, models_behind(session, known)


def _session(fields: Mapping[str, Any]) -> Session:
    from trajkit.rollouts.session import prepare

    return prepare(checked(Options, {**fields, "purpose": "eval"}))


def _actions(fields: Mapping[str, Any]) -> Actions:
    from trajkit.commands.play.stage import first_actions

    settings, tasks = fields.get("env_settings", {}), fields.get("tasks", ())
    return lambda: first_actions(fields["env_id"], settings, tasks, fields["seeds"])


def _tell(found: Evaluation) -> None:
    """Print what a reader of the result must know about the worlds and the prompts."""
    for overlap in found.exposure.overlaps:
        talk(f"not held out (--allow-leak): {overlap}")
    for unsure in found.exposure.unsure:
        talk(str(unsure))
    for other in found.other_prompts:
        talk(f"warning: {other}: what it learned may not show")
    if not found.is_reserved:
        plan = found.session.plan
        talk(
            f"seeds {plan.seeds} are not all reserved: "
            f"`trajkit reserve {plan.env_id} --seeds {plan.seeds}` keeps them out of training"
        )


def _played(found: Evaluation, engine: Engine | None, vllm_command: str) -> Evaluated:
    from trajkit.environments.quiet import kept_stdout
    from trajkit.evaluation.evaluation import with_store
    from trajkit.evaluation.report import report
    from trajkit.rollouts.session import open_run

    # C code and programs that an environment starts print where they like
    with (
        open_run(found.session) as run,
        vllm_of(run, vllm_command),
        kept_stdout(),
        shards_of(engine, run) as shards,
    ):
        run.session = with_store(run)
        done = play(run, division=shards)
    done.tell()
    return Evaluated(found, done, None if done.path is None else report(done.path))


def _notes(found: Report) -> Iterator[str]:
    """Notes that a reader needs beside the numbers."""
    from trajkit.evaluation.reports.text import notes

    yield from notes(_shown(found))
    yield from found.notes
    for group in found.groups:
        if group.n_judged and group.n_invalid >= _MOSTLY * group.n_judged:
            share = f"{group.n_invalid / group.n_judged:.0%} of {plural(group.n_judged, 'answer')}"
            yield f"{group.name}: {share} named no action; the environment's default was carried out instead"
