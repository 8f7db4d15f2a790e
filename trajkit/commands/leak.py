"""Find what a training store and an evaluation store have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from trajkit._core.output.console import Meter, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Columns, Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.curation.leaks.report import LeakReport


@flattened()
def leak(
    train: Annotated[StoreLike, Option(metavar="TRAIN")],
    evaluation: Annotated[StoreLike | None, Option(metavar="EVAL")] = None,
    *,
    strict_text: bool = False,
    near: float = 0.9,
    by: Columns = (),
    drop: Literal["train", "eval"] | None = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> LeakReport | Made:
    """Find what a training store and an evaluation store have in common.

    A shared episode id, world (environment, task and seed), initial state or group of --by is a leak, and so
    is an episode of a world that trajkit.toml reserves. A shared text (prompt, prompt with its answer,
    mission with first observation; case, spaces and punctuation are ignored) is a leak if a side has no
    seeds, and so is a prompt that shares nearly all its 5-word n-grams with another. If both sides have
    seeds, equal texts are only counted: small worlds often have equal texts. The exit code is 1 on a leak,
    unless --drop removes it from one side. Python gets the report, or with `drop` the new store; a leak does
    not raise an error.

    Args:
        train: The store to train on.
        evaluation: The store to measure on. Default: look for reserved worlds only.
        strict_text: Shared text is a leak even if both sides have seeds.
        near: Smallest share of common n-grams at which two prompts are near-identical.
        by: Columns whose combined values must not be on both sides, such as tags.customer.
        drop: Write this side without the episodes that leak.
        output: With --drop: the store to write.
        dry_run: With --drop: print the tally and write nothing.

    Raises:
        RequestError: There is nothing to compare with.
        QueryError: A store has no column of `by`.
        NothingMatched: `drop` leaves no episode.
        StoreError: A store cannot be read, or `output` exists.

    Example:
        trajkit leak stores/train stores/val
        trajkit leak stores/train stores/val --drop eval -o stores/clean
    """
    from trajkit._core.settings import reserved
    from trajkit.curation.leaks.leak import drop_leaks
    from trajkit.curation.leaks.leak import leak as find_leaks

    paths = {"train": store_path(train)}
    if evaluation is not None:
        paths["eval"] = store_path(evaluation)
    elif not reserved():
        raise RequestError(
            f"nothing to compare {paths['train']} with: no EVAL, and no seeds are reserved",
            hint="trajkit leak TRAIN EVAL; `trajkit reserve babyai --seeds 200:220` reserves some",
        )
    if drop is None:
        if output is not None or dry_run:
            raise RequestError("-o and --dry-run are for --drop", hint="--drop train, or --drop eval")
        with Meter() as meter:
            report = find_leaks(
                paths["train"],
                paths.get("eval"),
                strict_text=strict_text,
                near=near,
                by=many(by),
                engine=engine_of(engine, meter.show),
            )
        for note in report.unchecked():
            talk(note)
        return report
    if evaluation is None:
        raise RequestError(
            "--drop compares two stores, and there is no EVAL",
            hint="`trajkit select --unreserved` leaves out reserved worlds",
        )
    goal = None if dry_run else goal_of("leak", output)
    with Meter() as meter:
        manifest, entry = drop_leaks(
            paths.pop(drop),
            goal,
            other=paths.popitem()[1],
            is_train=drop == "train",
            strict_text=strict_text,
            near=near,
            by=many(by),
            engine=engine_of(engine, meter.show),
        )
    return Made(entry, goal, manifest).kept()
