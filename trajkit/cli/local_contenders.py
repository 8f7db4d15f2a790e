"""Contenders that play in this process: which model each is, and whose prompts it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trajkit.cli.contenders import Behind, Contender, models_of_variant, seen_by, tuned_by_name
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.cli.local_model import LocalName
    from trajkit.registry.ledger import TunedModel
    from trajkit.registry.lineage import Lineage
    from trajkit.rollout.local_player import LocalPlayer


class Stage(NamedTuple):
    """The configuration whose prompts are played."""

    config: Path
    """The file."""
    function: str
    """The function in it."""
    variants: tuple[str, ...]
    """The function's variants."""


class Cast(NamedTuple):
    """Who plays, and what is known of their models."""

    players: tuple[LocalPlayer, ...]
    behind: Behind


class _Chosen(NamedTuple):
    contender: Contender
    model: LocalName
    tuned: tuple[TunedModel, ...]
    """What it was made of; none for a model that was not tuned here."""
    function: str | None
    """The function whose prompts it learned; None when it learned none, or nobody knows."""
    variants: tuple[str, ...]
    """The variants of it."""


def find_stage(config_file: Path | None, function: str | None) -> Stage | None:
    """The configuration: as asked, else that of trajkit.toml, else that of the local stack; None for none.

    Raises:
        ConfigError: It cannot be read.
        RequestError: It has no such function.
    """
    from trajkit._settings import project
    from trajkit.rollout.venue import Venue, choose_function
    from trajkit.stack.gateway_config import read_config
    from trajkit.stack.state import local_stack

    settings = project()
    path = config_file or (Path(settings.config) if settings.config else None)
    if path is None and (stack := local_stack()) is not None:
        path = stack.config_file
    if path is None:
        if function is not None:
            raise RequestError(f"where is the function {function!r}?", hint="--config tensorzero.toml")
        return None
    names = read_config(path)
    chosen = choose_function(Venue(str(path), names), function)
    return Stage(path, chosen, names.functions[chosen])


def cast_of(
    contenders: Sequence[Contender],
    known: Lineage,
    stage: Stage | None,
    *,
    runs_folder: Path,
    template_variant: str | None,
    settings: Mapping[str, str],
) -> Cast:
    """Find every model, and the prompts that it gets.

    Args:
        contenders: As they were typed.
        known: The models that were tuned here.
        stage: The configuration; None where there is none, and trajkit's own prompt is played.
        runs_folder: Where the jobs are.
        template_variant: Whose prompts a model gets that is no variant of the function itself.
        settings: As `--policy-set` has them, for all.

    Raises:
        RequestError: A model or a variant is not there, or nobody can tell whose prompts it gets.
        DataError: The folder of jobs is damaged.
    """
    from trajkit.rollout.local_player import LocalPlayer

    if template_variant is not None:
        _check_template(template_variant, stage)
    chosen = [_chosen(each, known, stage, runs_folder) for each in contenders]
    prompts = _prompts(chosen, stage, template_variant)
    players = tuple(
        LocalPlayer(
            name=each.contender.name,
            model=each.model.model,
            base=each.model.base,
            called=each.model.called,
            config=None if stage is None else str(stage.config),
            function=None if stage is None else stage.function,
            variant=prompts[each.contender.name],
            settings=dict(settings),
        )
        for each in chosen
    )
    seen = [
        seen for each in chosen for model in each.tuned for seen in seen_by(known, each.contender.name, model)
    ]
    return Cast(players, Behind({each.contender.name: each.model.called for each in chosen}, tuple(seen)))


def _chosen(contender: Contender, known: Lineage, stage: Stage | None, runs_folder: Path) -> _Chosen:
    from trajkit.cli.candidate import template_variants
    from trajkit.cli.local_model import job_of, local_model
    from trajkit.cli.tuned import tuned_model

    name = contender.model or _model_of_variant(contender.name, known, stage)
    found, made_by = local_model(name, runs_folder), job_of(name, runs_folder)
    tuned = tuned_by_name(known, [name, found.model, str(Path(found.model).absolute())])
    if made_by is None:
        return _Chosen(contender, found, tuple(tuned), None, ())
    runs, job = made_by
    own = tuned_model(runs, job)  # it may be in another folder of jobs
    if all(each.job_key != own.job_key for each in tuned):
        tuned.append(own)
    variants = template_variants(own.train.history if own.train else ()) or job.variants
    return _Chosen(contender, found, tuple(tuned), job.function, variants)


def _model_of_variant(variant: str, known: Lineage, stage: Stage | None) -> str:
    """The folder of the model behind a registered variant."""
    from trajkit.store.nameable import nearest

    if stage is None:
        raise RequestError(
            f"nobody can tell which model {variant!r} is: there is no configuration",
            hint="--config tensorzero.toml, or NAME=MODEL",
        )
    if variant not in stage.variants:
        raise RequestError(
            f"no variant {variant!r} in the function {stage.function!r} of {stage.config}",
            hint=nearest(variant, stage.variants),
        )
    asked = models_of_variant(stage.config, stage.function, variant)
    for model in tuned_by_name(known, [name for one in asked for name in one.names]):
        for name in model.names:
            if Path(name).is_absolute() and Path(name).is_dir():
                return name
    raise RequestError(
        f"the model {', '.join(map(str, asked))} of the variant {variant!r} is not known on this machine",
        hint=f"--variants {variant}=MODEL or --model MODEL says which it is; --through gateway asks it there",
    )


def _prompts(
    chosen: Sequence[_Chosen], stage: Stage | None, template_variant: str | None
) -> dict[str, str | None]:
    """Whose prompts each gets: its own as a variant, those that are asked for, those that were learned."""
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


def _only(variants: Sequence[str], name: str, stage: Stage) -> str:
    if len(variants) == 1:
        return variants[0]
    raise RequestError(
        f"whose prompts does {name} get? The function {stage.function!r} has {len(stage.variants)} variants",
        hint=f"--template-variant: {', '.join(stage.variants)}",
    )


def _check_template(variant: str, stage: Stage | None) -> None:
    from trajkit.store.nameable import nearest

    if stage is None:
        raise RequestError(f"where is the variant {variant!r}?", hint="--config tensorzero.toml")
    if variant not in stage.variants:
        raise RequestError(
            f"no variant {variant!r} in the function {stage.function!r} of {stage.config}",
            hint=nearest(variant, stage.variants),
        )
