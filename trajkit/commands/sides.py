"""What is learned and what measures: two stores that are named, or one that is cut in two."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit._core.console import talk
from trajkit._core.settings import project, remembered
from trajkit.commands.place import Say, last_store, near
from trajkit.errors import NothingMatched, RequestError

if TYPE_CHECKING:
    from trajkit.training.runs import Runs

Choose = Callable[[tuple[str, ...], Path], str]


TRAIN, VALIDATION = "train", "val"
"""The sides of a split that are learned and that measure."""
FRACTION = 0.1
"""The share that measures where nobody says how much."""


class OfOneFunction(NamedTuple):
    """That the steps of one function are learned."""

    name: str | None
    """Which; None where nobody said."""
    choose: Choose
    """Asks which, where there are several."""


class Sides(NamedTuple):
    """What is learned, and what measures it."""

    train: Path
    """The store that is learned."""
    validation: Path | None
    """The store that measures; None for none."""


def sides(
    train: str | None,
    val: str | None,
    fraction: float = FRACTION,
    *,
    function: OfOneFunction | None = None,
    made: list[Path] | None = None,
    say: Say = talk,
) -> Sides:
    """The two stores of a training, both without what was played for evaluation.

    Args:
        train: What is learned; None for the last store that was written here.
        val: What measures. None for the side `val` of the split that `train` is a side of, where `fraction`
            is the usual one; else it is cut off.
        fraction: The share that is cut off; 0 for none.
        function: Whose steps are learned; None for those of every function.
        made: Gets the stores that are written on the way.
        say: Told what was made on the way.

    Raises:
        NothingMatched: A side would be empty.
        StoreError: A store cannot be read.
    """
    learned = Path(train or last_store(say))
    measured = Path(val) if val is not None else _sibling(learned, say) if fraction == FRACTION else None
    made = [] if made is None else made
    if function is not None:
        learned, name = of_function(learned, function.name, choose=function.choose, made=made, say=say)
        if measured is not None:
            measured, _ = of_function(measured, name, choose=function.choose, made=made, say=say)
    learned = _without_evaluation(learned, made, say)
    if measured is not None:
        return Sides(learned, _without_evaluation(measured, made, say))
    return _cut(learned, fraction, made, say) if fraction else Sides(learned, None)


@contextmanager
def unless_used(runs: Runs) -> Iterator[list[Path]]:
    """Stores that are made on the way to a job go again where no job came of it: a dry run leaves none.

    Args:
        runs: Where jobs are kept.
    """
    made: list[Path] = []
    try:
        yield made
    finally:
        here = [path.absolute() for path in made]
        used = [job.train.store.absolute() for job in runs.all()] if here else []
        if not any(path.is_relative_to(store) for path in used for store in here):
            for path in here:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):  # where others are in it, it stays
                    path.parent.rmdir()


def _sibling(learned: Path, say: Say) -> Path | None:
    """The other side of the split, or of the cut of pairs, that something is a side of; None without one."""
    other = learned.absolute().with_name(VALIDATION)
    mine, theirs = _split_of(learned), _split_of(other)
    if mine is None or mine != theirs or other == learned.absolute():
        return None
    say(f"measured by {learned.with_name(VALIDATION)}, of the same split")
    return learned.with_name(VALIDATION)


def _split_of(path: Path) -> Any:
    """What a store or pairs came of, where the last verb was a split; else None."""
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
    if not lineage or lineage[-1].verb != "split" or lineage[-1].arguments.get("side") != path.name:
        return None
    return lineage[-1].parent_digest, {**lineage[-1].arguments, "side": None}


def _without_evaluation(store: Path, made: list[Path], say: Say) -> Path:
    """The store, or one of its episodes that were not played for evaluation where it has such.

    Raises:
        NothingMatched: It has no others.
    """
    from trajkit.curation.select import select
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    opened = open_store(store)
    if not (n_evaluation := summarize(opened).purposes.get("eval", 0)):
        return store
    if n_evaluation == opened.manifest.counts.n_episodes:
        raise NothingMatched(
            f"every episode of {store} was played for evaluation: a training takes none of them",
            hint="--train and --val name stores with other episodes; --val-fraction cuts one in two",
        )
    goal = Path(project().stores) / f"sft-{opened.manifest.digest[:12]}-train"
    if not goal.exists():
        select(store, goal, where="purpose <> 'eval'")
        made.append(goal)
    episodes = "evaluation episode" if n_evaluation == 1 else "evaluation episodes"
    say(f"{goal}  {store} without its {n_evaluation:,} {episodes}")
    return goal


def _cut(train: Path, fraction: float, made: list[Path], say: Say) -> Sides:
    """The two sides of a store, which share nothing; those of an earlier cut are taken again."""
    from trajkit.store.reader import open_store

    digest = open_store(train).manifest.digest
    goal = Path(project().stores) / f"sft-{digest[:12]}-{fraction:g}"
    if not goal.exists():
        try:
            n_dropped = _cut_into(goal, train, fraction)
        except NothingMatched as error:
            hint = "--val names a store that measures, --val-fraction 0 measures nothing"
            raise NothingMatched(f"{train} cannot be cut in two: {error.message}", hint=hint) from error
        made.append(goal)
        say(f"{goal}  {train}, cut by world: {1 - fraction:.0%} to learn, {fraction:.0%} to measure")
        if n_dropped:
            episodes = "episode" if n_dropped == 1 else "episodes"
            say(f"not measured: {n_dropped:,} {episodes} whose prompts are nearly those of learned ones")
    return Sides(goal / TRAIN, goal / VALIDATION)


def _cut_into(goal: Path, train: Path, fraction: float) -> int:
    """Write the two sides; episodes that nearly read like learned ones leave the one that measures."""
    from trajkit._core.files import building_folder
    from trajkit.curation.leak import drop_leaks
    from trajkit.curation.split import split

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


def pair_sides(
    method: str,
    train: str | None,
    val: str | None,
    fraction: float = FRACTION,
    *,
    made: list[Path] | None = None,
    say: Say = talk,
) -> Sides:
    """What is learned of pairs, and what measures; as `sides` for stores.

    Args:
        method: `dpo` or `kto`, which takes stores too.
        train: What is learned; None for the last pairs that were written here.
        val: What measures; None for the sibling of `train`, else it is cut off.
        fraction: The share that is cut off; 0 for none.
        made: Gets what is written on the way.
        say: Told what was made on the way.

    Raises:
        RequestError: Nothing is named, and nothing was written here.
    """
    from trajkit.curation.pair_file import MANIFEST_NAME

    made = [] if made is None else made
    learned = Path(train or last_pairs(method, say))
    if (learned / MANIFEST_NAME).is_file():
        measured = Path(val) if val is not None else _sibling(learned, say) if fraction == FRACTION else None
        if measured is not None or not fraction:
            return Sides(learned, measured)
        return _cut_pairs(learned, fraction, made, say)
    if method == "dpo":
        return Sides(learned, None)  # it says itself that it is none
    return sides(str(learned), val, fraction, made=made, say=say)


def last_pairs(method: str, say: Say = talk) -> str:
    """The last pairs that were written here; for `kto` the last store, where no pairs were.

    Raises:
        RequestError: Nothing was written here.
    """
    if (last := remembered("last_pairs")) is not None:
        say(f"from {near(Path(last['path']))} (last written)")
        return str(last["path"])
    if method == "kto":
        return last_store(say)
    raise RequestError("no --train, and no pairs were written here", hint="`trajkit pairs` writes some")


def _cut_pairs(train: Path, fraction: float, made: list[Path], say: Say) -> Sides:
    """The two sides of a set of pairs; those of an earlier cut are taken again."""
    from trajkit.curation.pair_cut import cut_pairs
    from trajkit.curation.pair_file import open_pairs

    pairs = open_pairs(train)
    goal = Path(project().stores) / f"pairs-{pairs.manifest.digest[:12]}-{fraction:g}"
    if not goal.exists():
        found = cut_pairs(pairs, goal, fraction=fraction)
        made.append(goal)
        words = f"{1 - fraction:.0%} of the groups to learn, {fraction:.0%} to measure"
        say(f"{goal}  the pairs, cut by group: {words}")
        if found.n_parted:
            noun = "pair" if found.n_parted == 1 else "pairs"
            say(f"left out: {found.n_parted:,} {noun} whose episodes came to different sides")
    return Sides(goal / TRAIN, goal / VALIDATION)


class OfFunction(NamedTuple):
    """A store whose learned steps are of one function."""

    store: Path
    """Where it is; one from earlier is used again."""
    function: str | None
    """The function; None where the store names none."""


def which_function(functions: tuple[str, ...], store: Path) -> str:
    """Say that somebody has to choose.

    Raises:
        RequestError: Always.
    """
    raise RequestError(
        f"{store} has steps of {len(functions)} functions: which is tuned?",
        hint=f"--train-function NAME, of {', '.join(functions)}",
    )


def of_function(
    store: str | Path,
    wanted: str | None,
    *,
    choose: Choose = which_function,
    made: list[Path] | None = None,
    say: Say = talk,
) -> OfFunction:
    """A store whose learned steps are of one function.

    Args:
        store: Where the steps are.
        wanted: The function; None where nobody said.
        choose: Asks which, where there are several.
        made: Gets a store that is written.
        say: Told what was made on the way.

    Raises:
        RequestError: There are several, and nobody chose; or there is none of this name.
    """
    from trajkit.curation.function import only_function
    from trajkit.store.dataset import open_dataset
    from trajkit.training.origin import origin_of

    data = open_dataset(store)
    functions = origin_of(data).functions
    if wanted is None and len(functions) > 1:
        wanted = choose(functions, data.store.path)
    if wanted is None or functions == (wanted,):
        return OfFunction(Path(store), wanted or (functions[0] if functions else None))
    goal = Path(project().stores) / f"{wanted}-{data.store.manifest.digest[:12]}"
    if not goal.exists():
        done = only_function(store, goal, wanted)
        if made is not None:
            made.append(goal)
        n_steps = sum(each.n_steps for each in done.masked)
        say(f"{goal}  {n_steps:,} {'step' if n_steps == 1 else 'steps'} of other functions are context only")
    return OfFunction(goal, wanted)
