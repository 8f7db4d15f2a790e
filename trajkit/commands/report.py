"""Report the results of variants and their differences, with their training data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output import console
from trajkit._core.output.console import plural, talk
from trajkit.commands.options.types import (
    Columns,
    Confidence,
    Many,
    Option,
    Place,
    RunsFolder,
    StoreLike,
    many,
)
from trajkit.commands.place import last_evaluation, store_path, store_paths
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.evaluation.reports.model import Training
    from trajkit.evaluation.reports.object import Report
    from trajkit.registry.ledger import TunedModel


def report(
    stores: Annotated[
        StoreLike | Iterable[StoreLike] | Mapping[str, StoreLike] | None,
        Option(is_repeated=True, metavar="[STORE|NAME=STORE]..."),
    ] = None,
    *,
    output: Annotated[Place | None, Option(short="-o", metavar="FOLDER")] = None,
    baseline: Annotated[Many, Option(metavar="NAME")] = (),
    across_decodings: bool = False,
    require: Annotated[Many, Option(metavar="EXPRESSION")] = (),
    trained_on: Annotated[Many, Option(metavar="STORE")] = (),
    trained: Annotated[Mapping[str, str] | None, Option(metavar="NAME=JOB")] = None,
    metric: Annotated[Columns, Option(metavar="NAME")] = (),
    confidence: Confidence = 0.95,
    resamples: Annotated[int, Option(least=100)] = 10_000,
    seed: Annotated[int, Option(least=0)] = 0,
    runs: RunsFolder = "runs",
) -> Report:
    """Compare the variants in evaluation stores.

    NAME=STORE names the episodes of a store, such as before=stores/a after=stores/b. In Python it is a
    mapping. Without a store the command takes the last evaluation played here.

    Tasks have the same weight, and a world (environment, task and seed) counts once, however often it was
    tried. Success has Wilson's interval, other means a bootstrap interval within tasks. Differences are
    paired, over the worlds that both variants played. If any episode was played for evaluation, the others
    are left out.

    If answers were sampled in several ways, variants are compared within each: --baseline A is then A with
    every decoding. A variant that is alone with its decoding is compared with the others, if --baseline names
    it.

    --require takes MEASURE.FIELD, one of >, >=, <, <=, and a number. Fields are difference, low, high,
    baseline_value, candidate_value, standard_error, n_pairs and p_value of every comparison over all tasks;
    MEASURE[goto].FIELD is about one task, MEASURE[candidate=tuned, baseline=base].FIELD about one pair, and
    decoding=greedy about answers sampled that way. Measures are success, episode_return (or total_reward),
    n_steps, n_output_tokens, n_input_tokens, invalid and cost_usd.

    The training run of a tuned variant is found by its name, or its model's, among the jobs under --runs and
    their ledger; with several sizes of training data there is a learning curve.

    Args:
        stores: Evaluation stores, or folders of them.
        output: Write a page, Markdown, JSON, and every chart as PNG and SVG.
        baseline: The variant that the others are compared with; may be repeated. Default: the first.
        across_decodings: Also compare answers that were sampled in different ways.
        require: Exit 1 unless it holds, such as 'success.low > 0'; may be repeated.
        trained_on: Training data: also report only the worlds whose text is not in it; may be
            repeated.
        trained: The job or the model of a variant, if its name does not tell; may be repeated.
        metric: A further metric.
        confidence: Confidence of every interval.
        resamples: Resamples of the bootstrap.
        seed: Seed of the bootstrap.
        runs: The folder where jobs are kept.

    Raises:
        NotHeld: A requirement does not hold; everything was written before.
        RequestError: There is no such variant, or a number is out of its range.
        NothingMatched: There is no episode.
        StoreError: A store cannot be read, or `output` exists.

    Example:
        trajkit report stores/evaluation -o report --baseline base --require 'success.low > 0'
    """
    from trajkit._core.files import refuse_existing
    from trajkit.evaluation.report import report as report_of
    from trajkit.evaluation.reports.text import notes
    from trajkit.evaluation.require import require as hold
    from trajkit.evaluation.require import requirement

    wanted = [requirement(text) for text in many(require)]
    if output is not None:
        refuse_existing(Path(output))
    found = report_of(
        *_named(stores),
        baseline=many(baseline),
        across_decodings=across_decodings,
        trained_on=many(trained_on),
        trainings=_trainings(Path(runs), trained or {}),
        metrics=many(metric),
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )
    for one in wanted:
        one.of(found)  # a requirement about nothing is wrong before anything is written
    files = [] if output is None else found.save(output)
    console.notes((*found.notes, *notes(found.comparisons)))
    for leak in () if found.unaliased is None else found.unaliased.leaks:
        talk(f"leak: {leak}")
    if output is None:
        talk("-o FOLDER writes a page with charts, Markdown and JSON")
    else:
        talk(f"{output}  {plural(len(files), 'file')}: {Path(output) / 'report.html'} is the page")
    hold(found, wanted)
    for each in wanted:
        talk(f"holds: {each.text}")
    return found


def _named(stores: StoreLike | Iterable[StoreLike] | Mapping[str, StoreLike] | None) -> list[str]:
    """Where the stores are, as `NAME=STORE` if they are named."""
    if stores is None:
        return [last_evaluation()]
    if isinstance(stores, Mapping):
        return [f"{name}={store_path(store)}" for name, store in stores.items()]
    return [_placed(each) for each in store_paths(stores)]


def _placed(text: str) -> str:
    """NAME=STORE with a place for a tag."""
    name, equals, store = text.partition("=")
    return f"{name}={store_path(store)}" if equals and store.startswith("@") else text


def _trainings(runs_folder: Path, trained: Mapping[str, str]) -> Callable[[str], Training | None]:
    """Finds what a variant learned from, among the known models.

    Args:
        runs_folder: Where jobs are kept.
        trained: The job or the model of a variant, if its name does not tell.

    Raises:
        RequestError: There is no such model.
    """
    from trajkit.commands.comparison.contenders import lineage_in
    from trajkit.store.conditions.nameable import nearest

    known = lineage_in(runs_folder)
    of_variant: dict[str, TunedModel] = {}
    for name, model in trained.items():
        models = known.find_models(model)
        if not models:
            raise RequestError(
                f"--trained '{name}={model}': no model {model!r}", hint=nearest(model, known.names)
            )
        of_variant[name] = models[0]

    def find(name: str) -> Training | None:
        models = [of_variant[name]] if name in of_variant else known.find_models(name)
        return _training(models[0]) if len(models) == 1 else None

    return find


def _training(model: TunedModel) -> Training | None:
    from trajkit.evaluation.reports.model import Training

    if model.train is None:
        return None
    return Training(
        model=model.job_id or model.name, n_episodes=model.train.n_episodes, n_learned=model.train.n_learned
    )
