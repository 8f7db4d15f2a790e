"""Say how variants did and how they differ, with what they learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.place import Many, Place, StoreLike, many
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.evaluation.report_model import Training
    from trajkit.evaluation.report_object import Report
    from trajkit.registry.ledger import TunedModel


def report(
    stores: StoreLike | Iterable[StoreLike] | Mapping[str, StoreLike] | None = None,
    *,
    baseline: Many = (),
    across_decodings: bool = False,
    require: Many = (),
    trained_on: Many = (),
    trained: Mapping[str, str] | None = None,
    metric: Many = (),
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    runs: Place = "runs",
    output: Place | None = None,
) -> Report:
    """Compare the variants in evaluation stores; notebooks show it with its charts.

    Means weigh tasks the same and count a world (environment, task and seed) once, however often it was
    tried. Differences are taken pair by pair over the worlds that both played.

    Args:
        stores: One or several; a mapping says what the episodes of each are called, such as
            `{"before": "stores/a", "after": "stores/b"}`. None for the last evaluation that was played here.
        baseline: The variants that the others are compared with; none for the first.
        across_decodings: Compare also answers that were drawn in different ways.
        require: What must hold, such as `success.low > 0`.
        trained_on: Stores that were learned: also report the worlds alone that read like none of it.
        trained: The job, or the model, that a variant is of, where its name does not say.
        metric: Further metrics of episodes.
        confidence: Of every interval.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.
        runs: The folder where jobs are kept.
        output: Also write a page, Markdown, JSON and every chart into this folder.

    Raises:
        NotHeld: Something that is required does not hold; everything was written before.
        RequestError: There is no such variant, or a number is out of its range.
        NothingMatched: There is no episode.
        StoreError: A store cannot be read, or `output` exists.
    """
    from trajkit._core.files import refuse_existing
    from trajkit.evaluation.report import report as report_of
    from trajkit.evaluation.require import require as hold
    from trajkit.evaluation.require import requirement

    wanted = [requirement(text) for text in many(require)]
    if output is not None:
        refuse_existing(Path(output))
    found = report_of(
        *named(stores),
        baseline=many(baseline),
        across_decodings=across_decodings,
        trained_on=many(trained_on),
        trainings=trainings(Path(runs), trained or {}),
        metrics=many(metric),
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )
    for one in wanted:
        one.of(found)  # a requirement about nothing is wrong before anything is written
    if output is not None:
        found.save(output)
    hold(found, wanted)
    return found


def named(stores: StoreLike | Iterable[StoreLike] | Mapping[str, StoreLike] | None) -> list[str]:
    """Where the stores are, as `NAME=STORE` where they are named."""
    from trajkit.commands.place import last_evaluation, store_path, store_paths

    if stores is None:
        return [last_evaluation()]
    if isinstance(stores, Mapping):
        return [f"{name}={store_path(store)}" for name, store in stores.items()]
    return store_paths(stores)


def trainings(runs_folder: Path, trained: Mapping[str, str]) -> Callable[[str], Training | None]:
    """Finds what a variant learned from, among the models that are known here.

    Args:
        runs_folder: Where jobs are kept.
        trained: The job or the model of a variant, where its name does not say.

    Raises:
        RequestError: There is no such model.
    """
    from trajkit.commands.contenders import lineage_in
    from trajkit.store.nameable import nearest

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
    from trajkit.evaluation.report_model import Training

    if model.train is None:
        return None
    return Training(
        model=model.job_id or model.name, n_episodes=model.train.n_episodes, n_learned=model.train.n_learned
    )
