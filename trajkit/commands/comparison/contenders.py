"""What `trajkit evaluate` compares: variants of a function, or local models, and what these learned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.evaluation.exposure import Seen
    from trajkit.registry.ledger import Learned, TunedModel
    from trajkit.registry.lineage import Lineage
    from trajkit.rollouts.session import Session

_LEARNED, _MEASURED, _PLAYED = "learned", "was measured, while it was trained, on", "was chosen by playing"


class Contender(NamedTuple):
    """One of those that are compared, as it was typed."""

    name: str
    """Its name in the result: a variant of the function, or any name of a model."""
    model: str | None
    """The model that plays; None for that of the variant in the configuration."""


def typed(texts: Sequence[str], model: str | None = None) -> tuple[Contender, ...]:
    """The contenders: names, or NAME=MODEL, with commas between them.

    Args:
        texts: As they were typed, an option that may be repeated.
        model: The model of those that name none.

    Raises:
        RequestError: There is none, one is empty, or a name is given twice.
    """
    found: dict[str, Contender] = {}
    for piece in (piece.strip() for text in texts for piece in text.split(",")):
        name, mark, own = piece.partition("=")
        if not name or (mark and not own):
            raise RequestError(f"{','.join(texts)!r} has an empty name", hint="A,B or NAME=MODEL,NAME=MODEL")
        if name in found:
            raise RequestError(f"{name!r} is compared twice", hint="give each variant once")
        found[name] = Contender(name, own or model)
    if not found:
        raise RequestError("no variants given", hint="--variants A,B")
    return tuple(found.values())


def lineage_in(runs_folder: Path) -> Lineage:
    """Every model and registration that is known under a folder of jobs."""
    from trajkit.commands.training.tuned import all_models
    from trajkit.registry.ledger import Ledger
    from trajkit.registry.lineage import Lineage
    from trajkit.training.runs import Runs

    return Lineage(all_models(Runs(runs_folder)), Ledger(runs_folder).standing())


def seen_by(known: Lineage, variant: str, model: TunedModel) -> Iterator[Seen]:
    """What a model saw in training, and what the models that it was trained from saw."""
    for each in (model, *known.of_model(model).ancestors):
        yield from _seen(variant, each)


def _seen(variant: str, model: TunedModel) -> Iterator[Seen]:
    from trajkit.evaluation.exposure import Seen

    name = f"job {model.job_id}" if model.job_id is not None else model.name
    play: Any = model.recipe.get("play")
    plays = isinstance(play, Mapping)
    if model.train is not None:
        yield _of_data(variant, name, _LEARNED, model.train)
    elif not plays:
        yield Seen(variant=variant, model=name, how=_LEARNED, doubt="it was tuned elsewhere")
    if model.validation is not None:
        yield _of_data(variant, name, _MEASURED, model.validation)
    if not plays:
        return
    worlds: dict[str, Any] = {
        "variant": variant,
        "model": name,
        "env": str(play.get("env_name") or play.get("env", "")),
        "tasks": tuple(map(str, play.get("tasks", ()))),
    }
    if model.method == "rl":  # it learned what it played, unless that was logged
        how = {"seeds": _LEARNED, "eval_seeds": _PLAYED} if model.train is None else {"eval_seeds": _PLAYED}
    else:
        how = {"seeds": _PLAYED}
    for field, word in how.items():
        if play.get(field):
            yield Seen(how=word, seeds=str(play[field]), **worlds)


def seen_by_sample(variant: str, name: str | None) -> Iterator[Seen]:
    """The worlds that a model that comes with trajkit learned, as listed in the file beside its weights."""
    from trajkit._core.samples import SAMPLE_PREFIX, model_path
    from trajkit.evaluation.exposure import Seen

    if name is not None and name.startswith(SAMPLE_PREFIX):
        learned = json.loads((Path(model_path(name)) / "worlds.json").read_text(encoding="utf-8"))
        yield Seen(variant=variant, model=name, how=_LEARNED, **learned)


def _of_data(variant: str, model: str, how: str, data: Learned) -> Seen:
    from trajkit.evaluation.exposure import Seen

    return Seen(variant=variant, model=model, how=how, store=data.store, digest=data.digest)


class Behind(NamedTuple):
    """The models behind what is compared."""

    models: Mapping[str, str]
    """The name of the model of each variant, if known."""
    seen: tuple[Seen, ...]
    """What they were trained and chosen on."""
    other_prompts: tuple[str, ...] = ()
    """Which of them get other prompts than they learned."""


def models_behind(session: Session, known: Lineage) -> Behind:
    """The models that a gateway's variants call, by the configuration that describes them.

    Args:
        session: A rollout through a gateway.
        known: The models that were tuned here.
    """
    from trajkit.evaluation.exposure import Seen

    venue, function = session.venue, session.function_name
    variants = session.plan.variants
    if venue is None or venue.described_by is None or function is None:
        doubt = "the gateway's configuration is not known (--config names it)"
        return Behind(
            {}, tuple(Seen(variant=one, model="the model", how=_LEARNED, doubt=doubt) for one in variants)
        )
    models: dict[str, str] = {}
    seen: list[Seen] = []
    for variant in variants:
        found = models_of_variant(venue.described_by, function, variant)
        models[variant] = ", ".join(map(str, found))
        for tuned in tuned_by_name(known, [name for model in found for name in model.names]):
            seen += seen_by(known, variant, tuned)
    return Behind(models, tuple(seen))


def tuned_by_name(known: Lineage, names: Sequence[str]) -> list[TunedModel]:
    """The tuned models that have one of these names in a configuration."""
    return [model for model in known.models if not model.all_names.isdisjoint(names)]


def registered_as(known: Lineage, name: str) -> list[TunedModel]:
    """The tuned models that have this name for clients of a proxy."""
    return [each.model for each in known.registrations if each.function is None and each.variant == name]


class NamedModel(NamedTuple):
    """A model of a configuration."""

    name: str
    """What variants call it."""
    served: tuple[str, ...]
    """What its providers call it; none for one that the gateway knows by a prefix."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (self.name, *self.served)

    def __str__(self) -> str:
        others = [name for name in self.served if name != self.name]
        return f"{self.name} ({', '.join(others)})" if others else self.name


def models_of_variant(config_file: Path, function: str, variant: str) -> tuple[NamedModel, ...]:
    """The models that a variant calls, and those that its candidates call.

    Raises:
        ConfigError: The configuration cannot be read.
    """
    from trajkit.registry.toml_file import Configuration
    from trajkit.rollouts.gateway.paid import texts, with_candidates

    configuration = Configuration.read(config_file)
    variants = configuration.get("functions", function, "variants") or {}
    found = []
    names = (name for table in with_candidates(variants, variant, ()) for name in texts(table, "model"))
    for name in dict.fromkeys(names):
        providers = configuration.get("models", name, "providers") or {}
        served = [str(one["model_name"]) for one in providers.values() if "model_name" in one]
        found.append(NamedModel(name, tuple(dict.fromkeys(served))))
    return tuple(found)
