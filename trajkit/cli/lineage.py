"""`trajkit lineage`: what a model, a variant, a store or an episode has to do with the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.option import runs_option
from trajkit.commands.place import near
from trajkit.errors import ConfigError

if TYPE_CHECKING:
    from trajkit.registry.ledger import Learned, Registration, TunedModel
    from trajkit.registry.lineage import EpisodeLineage, ModelLineage, StoreLineage
    from trajkit.registry.use import Unknown, Use
    from trajkit.schema import LineageEntry

_MOST_SHOWN = 5

_EPILOG = """\
THING is a model (its name, its job, its folder), a variant (NAME or FUNCTION/NAME), a store (its folder, or
the beginning of its digest), or the id of an episode. Models are those of the jobs under --runs and of
`trajkit register`, whose ledger is there too. What was learned is read from the rows that a job keeps, else
from its store.
"""


@click.command(epilog=_EPILOG)
@click.argument("thing", required=False)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with every episode.")
def lineage(thing: str | None, runs_folder: Path, as_json: bool) -> None:
    """Say where THING comes from and what came of it; without one, the model of the last job.

    \b
    trajkit lineage history_and_reasoning_sft     which episodes trained this variant?
    trajkit lineage 0190a1b2-…                    which models saw this episode?
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.commands.ancestry import answers, last_job
    from trajkit.commands.contenders import lineage_in

    found = answers(lineage_in(runs_folder), thing or last_job())
    if as_json:
        console.result_json([each.model_dump(mode="json") for each in found])
        return
    for number, each in enumerate(found):
        if number:
            console.result()
        for line in _lines(each):
            console.result(line)


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
    """What a recipe says, but for what it leaves alone."""
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
        line = f"variant   {each.function}/{each.variant}  in {near(Path(each.config))}"
        since = f"since {each.registered_at:%Y-%m-%d %H:%M} UTC"
        gone = "" if _is_there(each) else "; it is not there any more"
        yield f"{line}  {since}, with the prompts of {each.template_variant}{gone}"


def _is_there(registration: Registration) -> bool:
    """Whether the configuration has the variant still."""
    from trajkit.registry.configuration import Configuration

    try:
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
        f"          {console.plural(len(uses), 'episode')}, {console.count(n_learned)} of"
        f" {console.plural(sum(use.n_steps for use in uses), 'step')} in its rows"
    )
    for use in uses[:_MOST_SHOWN]:
        yield f"          {use.episode_id}  {console.count(use.n_learned)} of {use.n_steps}"
    if len(uses) > _MOST_SHOWN:
        yield f"          … and {console.count(len(uses) - _MOST_SHOWN)} more: --json has them all"


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
            f"  {console.count(sight.use.n_learned)} of {console.plural(sight.use.n_steps, 'step')}"
        )
        yield from _variant_lines(sight.variants)
    for doubt in found.doubts:
        yield f"unknown   {doubt.model.name} ({doubt.side}): {doubt.reason}"
