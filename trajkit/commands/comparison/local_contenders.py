"""Contenders that play in this process: which model each is, and whose prompts it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit.commands.comparison.contenders import (
    Behind,
    Contender,
    models_of_variant,
    registered_as,
    seen_by,
    seen_by_sample,
    tuned_by_name,
)
from trajkit.commands.play.local_model import LocalName, job_of, local_model
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.play.stage import Actions, Stage
    from trajkit.registry.ledger import TunedModel
    from trajkit.registry.lineage import Lineage
    from trajkit.rollouts.local.player import LocalPlayer
    from trajkit.training.job import TuneJob
    from trajkit.training.runs import Runs


class Cast(NamedTuple):
    """Who plays, and what is known about their models."""

    players: tuple[LocalPlayer, ...]
    behind: Behind


class _Chosen(NamedTuple):
    contender: Contender
    model: LocalName
    tuned: tuple[TunedModel, ...]
    """Its origin; none for a model that was not tuned here."""
    function: str | None
    """The function whose prompts it learned; None when it learned none, or when it is not known."""
    variants: tuple[str, ...]
    """The variants of it."""
    agents: tuple[str, ...] = ()
    """The agents of the user's own whose prompts it learned, as `--policy` names them."""
    is_job: bool = False
    """A job made it, so that what it learned is known."""

    @property
    def has_own_prompts(self) -> bool:
        """Whether it learned the prompts of no function."""
        return self.is_job and self.function is None and not self.variants

    def player(self, **fields: Any) -> LocalPlayer:
        """The model as a player; the fields say whose prompts it gets."""
        from trajkit.rollouts.local.player import LocalPlayer

        model = self.model
        return LocalPlayer(
            name=self.contender.name, model=model.model, base=model.base, called=model.called, **fields
        )


def cast_of(
    contenders: Sequence[Contender],
    known: Lineage,
    stage: Stage | None,
    *,
    env_id: str,
    actions: Actions,
    runs_folder: Path,
    template_variant: str | None,
    settings: Mapping[str, str],
    is_served: bool = False,
) -> Cast:
    """Find every model, and the prompts that it gets.

    Args:
        contenders: As they were typed.
        known: The models that were tuned here.
        stage: The configuration; None plays trajkit's own prompt. It is None if there is no configuration, or
            if none was named, no model belongs to one, and the one here does not fit: it is for another
            environment, or a model learned other prompts.
        env_id: What is played.
        actions: The valid actions there.
        runs_folder: Where the jobs are.
        template_variant: The variant whose prompts a model gets that is not itself a variant.
        settings: As `--policy-set` has them, for all.
        is_served: Whether a name may also be that of a model at a server.

    Raises:
        RequestError: A model or a variant does not exist, or it is not known whose prompts it gets.
        DataError: The folder of jobs is damaged.
    """
    if template_variant is not None:
        _check_variant(template_variant, stage)
    chosen = [
        _chosen(each, known, _model_here(each, known, stage, runs_folder, is_served), runs_folder)
        for each in contenders
    ]
    if stage is not None:
        stage = _fitting(stage, chosen, env_id, actions, template_variant)
    prompts = _prompts(chosen, stage, template_variant)
    players = tuple(
        each.player(
            config=None if stage is None else str(stage.config),
            function=None if stage is None else stage.function,
            variant=prompts[each.contender.name],
            settings=dict(settings),
        )
        for each in chosen
    )
    return Cast(players, _behind(chosen, known, tuple(_other_prompts(chosen, stage, prompts))))


def cast_of_models(
    contenders: Sequence[Contender],
    known: Lineage,
    *,
    agent: str | None = None,
    is_here: bool,
    runs_folder: Path,
) -> Cast:
    """Find every model that is to answer logged prompts, or that an agent calls.

    Args:
        contenders: As they were typed.
        known: The models that were tuned here.
        agent: The agent with its settings; the models that learned other prompts than its own are reported.
        is_here: Whether the models are local; else they are at a server.
        runs_folder: Where the jobs are.

    Raises:
        RequestError: A model does not exist, or a variant names none.
        DataError: The folder of jobs is damaged.
    """
    chosen = _models(contenders, known, is_here=is_here, runs_folder=runs_folder)
    others = []
    for one in chosen:
        learned = ", ".join(one.agents or one.variants) or "no agent"
        if agent is not None and one.is_job and agent not in one.agents:
            others.append(f"{one.contender.name} learned the prompts of {learned}, and gets those of {agent}")
    return Cast(tuple(one.player() for one in chosen), _behind(chosen, known, tuple(others)))


def _models(
    contenders: Sequence[Contender], known: Lineage, *, is_here: bool, runs_folder: Path
) -> list[_Chosen]:
    chosen = []
    for each in contenders:
        if each.model is None and is_here:
            raise RequestError(f"no model for {each.name!r}", hint="--variants NAME=MODEL, or --model MODEL")
        if each.model is None:  # a server knows its models by their names
            each = each._replace(model=each.name)
        assert each.model is not None
        if is_here:
            found = _Found(local_model(each.model, runs_folder), job_of(each.model, runs_folder))
        else:
            found = _model_at_server(each.model, known, runs_folder)
        chosen.append(_chosen(each, known, found, runs_folder))
    return chosen


def agent_name(policy: str, settings: Mapping[str, object]) -> str:
    """An agent with its settings, which decide its prompts too."""
    given = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    return f"{policy} with {given}" if given else policy


def _behind(chosen: Sequence[_Chosen], known: Lineage, other_prompts: tuple[str, ...]) -> Behind:
    seen = [
        seen for each in chosen for model in each.tuned for seen in seen_by(known, each.contender.name, model)
    ]
    for each in chosen:
        seen += seen_by_sample(each.contender.name, each.model.base or each.model.model)
    return Behind({each.contender.name: each.model.called for each in chosen}, tuple(seen), other_prompts)


class _Found(NamedTuple):
    model: LocalName
    made_by: tuple[Runs, TuneJob] | None
    """The job that made it."""


def _model_here(
    contender: Contender, known: Lineage, stage: Stage | None, runs_folder: Path, is_served: bool
) -> _Found:
    name = contender.model or _model_of_variant(contender.name, known, stage)
    return _Found(local_model(name, runs_folder, is_served=is_served), job_of(name, runs_folder))


def _model_at_server(name: str, known: Lineage, runs_folder: Path) -> _Found:
    """A model by its name at a server, or by the name of the job that tuned it there."""
    made_by = job_of(name, runs_folder)
    if made_by is None:
        models = (*registered_as(known, name), *tuned_by_name(known, [name]))
        jobs = [model.job_id for model in models if model.job_id is not None]
        return _Found(LocalName(name, name, None), job_of(jobs[0], runs_folder) if jobs else None)
    _, job = made_by
    if (served := job.result.get("model")) is None:
        raise RequestError(
            f"job {job.job_id} has no model at a server: it is {job.status}",
            hint=f"without --model-url the model of job {job.job_id} plays on this machine",
        )
    return _Found(LocalName(job.job_id, str(served), None), made_by)


def _chosen(contender: Contender, known: Lineage, found: _Found, runs_folder: Path) -> _Chosen:
    from trajkit.commands.registration.candidate import template_variants
    from trajkit.commands.training.tuned import tuned_model

    model = found.model
    names = [contender.model or model.model, model.model, str(Path(model.model).absolute())]
    tuned = tuned_by_name(known, names)
    tuned += [one for one in registered_as(known, contender.model or "") if one not in tuned]
    if found.made_by is None:
        return _Chosen(contender, model, tuple(tuned), None, ())
    runs, job = found.made_by
    own = tuned_model(runs, job)  # it may be in another folder of jobs
    if all(each.job_key != own.job_key for each in tuned):
        tuned.append(own)
    history = own.train.history if own.train else ()
    played = [entry.arguments for entry in history if entry.verb == "rollout"]
    agents = dict.fromkeys(
        agent_name(policy, settings if isinstance(settings, dict) else {})
        for policy, settings in ((each.get("policy"), each.get("policy_settings")) for each in played)
        if isinstance(policy, str) and ":" in policy
    )
    variants = template_variants(history) or job.variants
    return _Chosen(contender, model, tuple(tuned), job.function, variants, tuple(agents), is_job=True)


def _fitting(
    stage: Stage, chosen: Sequence[_Chosen], env_id: str, actions: Actions, template_variant: str | None
) -> Stage | None:
    """The configuration; None if it was not asked for and does not fit."""
    is_needed = stage.is_asked or template_variant is not None
    for each in chosen:
        is_variant = each.contender.model is None or each.contender.name in stage.variants
        is_needed = is_needed or is_variant or each.function is not None
    if not is_needed and (any(each.has_own_prompts for each in chosen) or stage.foreign(actions)):
        return None
    stage.refuse_foreign(env_id, actions)
    return stage


def _model_of_variant(variant: str, known: Lineage, stage: Stage | None) -> str:
    """The folder of the model behind a registered variant."""
    if stage is None:
        raise RequestError(
            f"it is not known which model {variant!r} is: there is no configuration",
            hint="--config tensorzero.toml, or NAME=MODEL",
        )
    _check_variant(variant, stage)
    asked = models_of_variant(stage.config, stage.function, variant)
    for model in tuned_by_name(known, [name for one in asked for name in one.names]):
        for name in model.names:
            if Path(name).is_absolute() and Path(name).is_dir():
                return name
    raise RequestError(
        f"the model {', '.join(map(str, asked))} of the variant {variant!r} is not known on this machine",
        hint=f"--variants {variant}=MODEL or --model MODEL names it; --through gateway calls it there",
    )


def _prompts(
    chosen: Sequence[_Chosen], stage: Stage | None, template_variant: str | None
) -> dict[str, str | None]:
    """Whose prompts each gets: its own as a variant, the requested ones, or the learned ones."""
    if stage is None:
        for each in chosen:
            if each.function is not None:
                raise RequestError(
                    f"{each.contender.name} learned the prompts of the function {each.function!r}, "
                    "and there is no configuration that has them",
                    hint="--config tensorzero.toml",
                )
        return {each.contender.name: None for each in chosen}
    learned = dict.fromkeys(name for each in chosen for name in each.variants if name in stage.variants)
    found: dict[str, str | None] = {}
    for each in chosen:
        name = each.contender.name
        own = [variant for variant in each.variants if variant in stage.variants]
        if name in stage.variants:
            found[name] = name
        elif template_variant is not None:
            found[name] = template_variant
        else:
            found[name] = _only(own or list(learned) or list(stage.variants), name, stage)
    return found


def _other_prompts(
    chosen: Sequence[_Chosen], stage: Stage | None, prompts: Mapping[str, str | None]
) -> Iterator[str]:
    """Each model that gets other prompts than those that it learned."""
    for each in chosen:
        given = prompts[each.contender.name]
        own = [] if stage is None else [variant for variant in each.variants if variant in stage.variants]
        learned = own or each.agents
        if (
            stage is not None
            and given is not None
            and any(stage.have_same_prompts(given, one) for one in own)
        ):
            continue
        if learned and given not in learned:
            whose = "trajkit's own" if given is None else f"those of {given}"
            yield f"{each.contender.name} learned the prompts of {', '.join(learned)}, and gets {whose}"
        elif given is not None and each.has_own_prompts:
            yield f"{each.contender.name} learned the prompts of no function, and gets those of {given}"


def _only(variants: Sequence[str], name: str, stage: Stage) -> str:
    if len(variants) == 1:
        return variants[0]
    raise RequestError(
        f"no prompts chosen for {name}: the function {stage.function!r} has {len(stage.variants)} variants",
        hint=f"--template-variant: {', '.join(stage.variants)}",
    )


def _check_variant(variant: str, stage: Stage | None) -> None:
    from trajkit.store.conditions.nameable import nearest

    if stage is None:
        raise RequestError(f"no configuration for {variant!r}", hint="--config tensorzero.toml")
    if variant not in stage.variants:
        raise RequestError(
            f"no variant {variant!r} in the function {stage.function!r} of {stage.config}",
            hint=nearest(variant, stage.variants),
        )
