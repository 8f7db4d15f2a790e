"""Show where a model, a variant, a store or an episode comes from, and what was made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from trajkit._core.output.console import count, line, plural
from trajkit._core.output.result import Result
from trajkit.commands.options.types import RunsFolder
from trajkit.commands.place import last_job, near, store_path
from trajkit.errors import ConfigError, RequestError, StoreError

if TYPE_CHECKING:
    from trajkit.registry.ledger import Learned, Registration, TunedModel
    from trajkit.registry.lineage import EpisodeLineage, Lineage, ModelLineage, StoreLineage, Unknown, Use
    from trajkit.schema import LineageEntry

_MOST_SHOWN = 5
_Known: TypeAlias = Union["ModelLineage", "StoreLineage", "EpisodeLineage"]


class Origins(list[_Known], Result):
    """The lineage of each thing with the name."""

    def to_json(self) -> list[dict[str, Any]]:
        """Each with every episode."""
        return [each.model_dump(mode="json") for each in self]

    def __str__(self) -> str:
        return "\n\n".join("\n".join(map(line, _lines(each))) for each in self)


def lineage(thing: str | None = None, *, runs: RunsFolder = "runs") -> Origins:
    """Show where a model, a variant, a store or an episode comes from, and what was made from it.

    THING is a model (its name, its job, its folder), a variant (NAME or FUNCTION/NAME), a store (its folder,
    @NAME, or the beginning of its digest), or the id of an episode. Models are those of the jobs under --runs
    and of `trajkit register`, whose ledger is there too. The learned episodes are read from the rows that a
    job keeps, else from its store.

    Args:
        thing: A model, a variant, a store or the id of an episode. Default: the model of the last job.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: Nothing has this name.

    Example:
        trajkit lineage history_and_reasoning_sft     which episodes trained this variant?
        trajkit lineage 0190a1b2-…                    which models saw this episode?
    """
    from trajkit.commands.comparison.contenders import lineage_in

    if thing is None:
        last = last_job()
        if last is None:
            raise RequestError("no THING given", hint="a model, a variant, a store or an episode")
        thing = last[1]
        if not (Path(runs) / thing).is_dir():  # it was started in another folder
            runs = last[0]
    return Origins(_answers(lineage_in(Path(runs)), store_path(thing)))


def _answers(known: Lineage, thing: str) -> tuple[_Known, ...]:
    if (store := _store(known, thing)) is not None:
        return (store,)
    if models := known.find_models(thing):
        return tuple(known.of_model(model) for model in models)
    if digests := known.find_digests(thing):
        return tuple(known.of_store(digest) for digest in digests)
    episode = known.of_episode(thing)
    if episode.sights:
        return (episode,)
    from trajkit.store.conditions.nameable import nearest

    unknown = "; ".join(f"not known of {doubt.model.name}: {doubt.reason}" for doubt in episode.doubts)
    hint = f"no episode of that id was learned; {nearest(thing, known.names)}"
    raise RequestError(f"nothing is known of {thing!r}", hint=f"{hint}; {unknown}" if unknown else hint)


def _store(known: Lineage, thing: str) -> StoreLineage | None:
    """A store or pairs by their folder; None when it is neither."""
    from trajkit.commands.training.tuned import manifest_of

    try:
        manifest = manifest_of(thing)
    except StoreError:
        return None
    return known.of_store(manifest.digest, path=thing, history=manifest.lineage)


def _lines(found: ModelLineage | StoreLineage | EpisodeLineage) -> Iterator[str]:
    from trajkit.registry.lineage import EpisodeLineage, StoreLineage

    if isinstance(found, StoreLineage):
        return _store_lines(found)
    return _episode_lines(found) if isinstance(found, EpisodeLineage) else _model_lines(found)


def _model_lines(found: ModelLineage) -> Iterator[str]:
    yield _model_line("model", found.model)
    yield from _variant_lines(found.variants)
    for ancestor in found.ancestors:
        yield _model_line("from", ancestor)
    if found.model.recipe:
        yield f"recipe    {'  '.join(_flat(found.model.recipe))}"
    yield from _learned_lines("learned", found.model.train, found.train)
    yield from _learned_lines("measured", found.model.validation, found.validation)
    if found.model.train is not None:
        yield from _history_lines(found.model.train.history)


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The settings of a recipe, except those that are off."""
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value not in (None, False):
            yield f"{prefix}{name}={value}"


def _model_line(title: str, model: TunedModel) -> str:
    parts = [f"{title:9} {model.name}"]
    if model.job_id is not None and model.job_id != model.name:
        parts.append(f"job {model.job_id}")
    if model.method is not None:
        parts.append(f"{model.method} on {model.target}, from {model.base}")
    if model.train is None:
        parts.append("tuned elsewhere: what it learned is not known")
    return "  ".join(parts)


def _variant_lines(variants: Sequence[Registration]) -> Iterator[str]:
    for each in variants:
        text = f"variant   {each.title}  in {near(Path(each.config))}"
        since = f"since {each.registered_at:%Y-%m-%d %H:%M} UTC"
        gone = "" if _is_there(each) else "; it no longer exists"
        prompts = "" if each.template_variant is None else f", with the prompts of {each.template_variant}"
        yield f"{text}  {since}{prompts}{gone}"


def _is_there(registration: Registration) -> bool:
    """Whether the configuration still has the variant."""
    from trajkit.registry.proxy_config import ProxyConfig
    from trajkit.registry.toml_file import Configuration

    try:
        if registration.function is None:
            models = ProxyConfig.read(registration.config).models
            return any(each.get("model_name") == registration.variant for each in models)
        config = Configuration.read(registration.config)
    except ConfigError:
        return False
    return config.get("functions", registration.function, "variants", registration.variant) is not None


def _learned_lines(
    title: str, learned: Learned | None, uses: tuple[Use, ...] | Unknown | None
) -> Iterator[str]:
    if learned is None:
        return
    yield f"{title:9} {near(learned.store)}  {learned.digest[:12]}"
    if not isinstance(uses, tuple):
        yield f"          {'nothing is known' if uses is None else uses.reason}"
        return
    n_learned = sum(use.n_learned for use in uses)
    yield (
        f"          {plural(len(uses), 'episode')}, {count(n_learned)} of"
        f" {plural(sum(use.n_steps for use in uses), 'step')} in its rows"
    )
    for use in uses[:_MOST_SHOWN]:
        yield f"          {use.episode_id}  {count(use.n_learned)} of {use.n_steps}"
    if len(uses) > _MOST_SHOWN:
        yield f"          … and {count(len(uses) - _MOST_SHOWN)} more: --json has them all"


def _store_lines(found: StoreLineage) -> Iterator[str]:
    yield f"store     {found.path or 'of that digest'}  {found.digest[:12]}"
    yield from _history_lines(found.history)
    for model in found.models:
        yield _model_line("learned", model)
    for model in found.measured:
        yield _model_line("measured", model)
    if not found.models and not found.measured:
        yield "learned   by no model that is known here"
    yield from _variant_lines(found.variants)


def _history_lines(history: Sequence[LineageEntry]) -> Iterator[str]:
    from trajkit.store.tally import lines_of

    for entry in history:
        lines = lines_of(entry)
        yield f"{entry.done_at:%Y-%m-%d %H:%M}  {lines[0]}"
        yield from (f"                  {line.strip()}" for line in lines[1:])


def _episode_lines(found: EpisodeLineage) -> Iterator[str]:
    yield f"episode   {found.episode_id}"
    for sight in found.sights:
        title = "learned" if sight.side == "train" else "measured"
        yield (
            f"{_model_line(title, sight.model)}"
            f"  {count(sight.use.n_learned)} of {plural(sight.use.n_steps, 'step')}"
        )
        yield from _variant_lines(sight.variants)
    for doubt in found.doubts:
        yield f"unknown   {doubt.model.name} ({doubt.side}): {doubt.reason}"
