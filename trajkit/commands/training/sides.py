"""Training and validation data: two named stores, or one that is cut in two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit._core.address import place_of
from trajkit._core.output.console import can_ask, choose, plural, talk
from trajkit._core.settings import project, remembered
from trajkit.commands.options.types import StoreLike
from trajkit.commands.place import last_store, near, store_path
from trajkit.errors import NothingMatched, RequestError

if TYPE_CHECKING:
    from trajkit.training.runs import Runs

TRAIN, VALIDATION = "train", "val"
"""The sides of a split for training and for validation."""
FRACTION = 0.1
"""The default share of the validation data."""


class Sides(NamedTuple):
    """Training and validation data."""

    train: Path
    """The store to train on."""
    validation: Path | None
    """The store to validate on; None for none."""


def learned_by(method: str, train: StoreLike | None) -> str:
    """Where the training data is: as given, else the store or, for preferences, the pairs written last.

    Raises:
        RequestError: Nothing is given, and nothing was written here.
    """
    if train is not None or method == "sft":
        return store_path(train)
    if (last := remembered("last_pairs")) is not None:
        talk(f"from {near(place_of(last['path']))} (last written)")
        return str(last["path"])
    if method == "kto":
        return last_store()
    raise RequestError("no --train, and no pairs were written here", hint="`trajkit pairs` writes some")


def sides(
    method: str,
    train: str,
    val: StoreLike | None,
    fraction: float,
    *,
    made: list[Path],
    is_of_one_function: bool = False,
    function: str | None = None,
) -> Sides:
    """Training and validation data, both without evaluation episodes.

    Args:
        method: `sft` takes stores, `dpo` pairs, and `kto` both.
        train: The training data.
        val: The validation data. None for the side `val` of the split that `train` is a side of, if
            `fraction` is the default; else it is cut off.
        fraction: The share that is cut off; 0 for none.
        made: Gets the stores that are written.
        is_of_one_function: Whether only the steps of one function are learned.
        function: Which; None for the only one.

    Raises:
        NothingMatched: A side would be empty.
        RequestError: There are several functions, and none is chosen.
        StoreError: A store cannot be read.
    """
    from trajkit.curation.pair_file import MANIFEST_NAME

    learned, measured = place_of(train), None if val is None else place_of(store_path(val))
    are_pairs = method != "sft" and (learned / MANIFEST_NAME).is_file()
    if method == "dpo" and not are_pairs:
        return Sides(learned, None)  # what prepares the job refuses it
    if measured is None and fraction == FRACTION:
        measured = _sibling(learned)
    if are_pairs:
        if measured is not None or not fraction:
            return Sides(learned, measured)
        return _cut_pairs(learned, fraction, made)
    if is_of_one_function:
        learned, function = _of_function(learned, function, made)
        if measured is not None:
            measured, _ = _of_function(measured, function, made)
    learned = _without_evaluation(learned, made)
    if measured is not None:
        return Sides(learned, _without_evaluation(measured, made))
    return _cut(learned, fraction, made) if fraction else Sides(learned, None)


@contextmanager
def unless_used(runs: Runs) -> Iterator[list[Path]]:
    """Remove the stores made for a job if no job was created: a dry run leaves none.

    Args:
        runs: Where jobs are kept.
    """
    made: list[Path] = []
    try:
        yield made
    finally:
        here = [path.absolute() for path in made]
        used = [job.train.store.absolute() for job in runs.all() if job.train is not None] if here else []
        if not any(path.is_relative_to(store) for path in used for store in here):
            for path in here:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):  # if others are in it, it stays
                    path.parent.rmdir()


def _sibling(learned: Path) -> Path | None:
    """The other side of the split, or of the cut of pairs; None without one."""
    other = learned.absolute().with_name(VALIDATION)
    mine, theirs = _split_of(learned), _split_of(other)
    if mine is None or mine != theirs or other == learned.absolute():
        return None
    talk(f"measured by {learned.with_name(VALIDATION)}, of the same split")
    return learned.with_name(VALIDATION)


def _split_of(path: Path) -> Any:
    """The split that made a store or pairs, if that was the last verb; else None."""
    from trajkit.curation.pair_file import MANIFEST_NAME as PAIRS
    from trajkit.curation.pair_file import open_pairs
    from trajkit.store.layout import MANIFEST_NAME
    from trajkit.store.reader import open_store

    if (path / PAIRS).is_file():
        lineage = open_pairs(path).manifest.lineage
    elif (path / MANIFEST_NAME).is_file():
        lineage = open_store(path).manifest.lineage
    else:
        return None
    if not lineage or lineage[-1].verb != "split" or lineage[-1].result.get("side") != path.name:
        return None
    return lineage[-1].parent_digest, {**lineage[-1].options, "side": None}


def _without_evaluation(store: Path, made: list[Path]) -> Path:
    """The store, or a new one without its evaluation episodes if it has any.

    Raises:
        NothingMatched: It has no others.
    """
    from trajkit.curation.selection.select import select
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    opened = open_store(store)
    if not (n_evaluation := summarize(opened).purposes.get("eval", 0)):
        return store
    if n_evaluation == opened.manifest.counts.n_episodes:
        raise NothingMatched(
            f"every episode of {store} was played for evaluation: training takes none of them",
            hint="--train and --val name stores with other episodes; --val-fraction cuts one in two",
        )
    goal = Path(project().stores) / f"sft-{opened.manifest.digest[:12]}-train"
    if not goal.exists():
        select(store, goal, where="purpose <> 'eval'")
        made.append(goal)
    talk(f"{goal}  {store} without its {plural(n_evaluation, 'evaluation episode')}")
    return goal


def _cut(train: Path, fraction: float, made: list[Path]) -> Sides:
    """The two sides of a store, which share nothing; those of an earlier cut are reused."""
    from trajkit.store.reader import open_store

    digest = open_store(train).manifest.digest
    goal = Path(project().stores) / f"sft-{digest[:12]}-{fraction:g}"
    if not goal.exists():
        try:
            n_dropped = _cut_into(goal, train, fraction)
        except NothingMatched as error:
            hint = "--val names a validation store, --val-fraction 0 uses none"
            raise NothingMatched(f"{train} cannot be cut in two: {error.message}", hint=hint) from error
        made.append(goal)
        talk(f"{goal}  {train}, cut by world: {1 - fraction:.0%} to learn, {fraction:.0%} to measure")
        if n_dropped:
            talk(
                f"not measured: {plural(n_dropped, 'episode')} whose prompts are nearly those of learned ones"
            )
    return Sides(goal / TRAIN, goal / VALIDATION)


def _cut_into(goal: Path, train: Path, fraction: float) -> int:
    """Write the two sides; episodes near-identical to learned ones are left out of validation."""
    from trajkit._core.files import building_folder
    from trajkit.curation.leaks.leak import drop_leaks
    from trajkit.curation.selection.split import split

    with building_folder(goal.absolute()) as folder:
        whole = folder / "whole"
        split(train, whole, ratio={TRAIN: 1 - fraction, VALIDATION: fraction}, leak_free=True)
        (whole / TRAIN).rename(folder / TRAIN)
        clean = partial(drop_leaks, whole / VALIDATION, other=folder / TRAIN, is_train=False)
        _, entry = clean(None)
        if n_dropped := entry.n_episodes_in - entry.n_episodes_out:
            clean(folder / VALIDATION)
        else:
            (whole / VALIDATION).rename(folder / VALIDATION)
        shutil.rmtree(whole)
        return n_dropped


def _cut_pairs(train: Path, fraction: float, made: list[Path]) -> Sides:
    """The two sides of a set of pairs; those of an earlier cut are reused."""
    from trajkit.curation.pair_file import open_pairs
    from trajkit.curation.preferences.cut import cut_pairs

    pairs = open_pairs(train)
    goal = Path(project().stores) / f"pairs-{pairs.manifest.digest[:12]}-{fraction:g}"
    if not goal.exists():
        found = cut_pairs(pairs, goal, fraction=fraction)
        made.append(goal)
        words = f"{1 - fraction:.0%} of the groups to learn, {fraction:.0%} to measure"
        talk(f"{goal}  the pairs, cut by group: {words}")
        if found.n_parted:
            talk(f"left out: {plural(found.n_parted, 'pair')} whose episodes came to different sides")
    return Sides(goal / TRAIN, goal / VALIDATION)


def _of_function(store: Path, wanted: str | None, made: list[Path]) -> tuple[Path, str | None]:
    """A store whose learned steps are of one function, and the function; None if the store names none.

    Raises:
        RequestError: There are several, and none is chosen; or there is none of this name.
    """
    from trajkit.curation.masks.mask import only_function
    from trajkit.store.dataset import open_dataset
    from trajkit.training.origin import origin_of

    data = open_dataset(store)
    functions = origin_of(data).functions
    if wanted is None and len(functions) > 1:
        if not can_ask():
            raise RequestError(
                f"{data.store.path} has steps of {len(functions)} functions, and none is chosen",
                hint=f"--train-function NAME, of {', '.join(functions)}",
            )
        wanted = choose("Which function is tuned?", functions)
    if wanted is None or functions == (wanted,):
        return store, wanted or (functions[0] if functions else None)
    goal = Path(project().stores) / f"{wanted}-{data.store.manifest.digest[:12]}"
    if not goal.exists():
        done = only_function(store, goal, wanted)
        made.append(goal)
        n_steps = sum(each.n_steps for each in done.masked)
        talk(f"{goal}  {plural(n_steps, 'step')} of other functions are context only")
    return goal, wanted
