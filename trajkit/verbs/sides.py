"""What is learned and what measures: two stores that are named, or one that is cut in two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trajkit._settings import project, remembered
from trajkit.errors import NothingMatched, RequestError
from trajkit.verbs.place import last_store

Say = Callable[[str], object]
Choose = Callable[[tuple[str, ...], Path], str]


class Sides(NamedTuple):
    """What is learned, and what measures it."""

    train: Path
    """The store that is learned."""
    validation: Path | None
    """The store that measures; None for none."""


def nothing(text: str) -> None:
    """Say nothing."""


def sides(train: str | None, val: str | None, fraction: float, *, say: Say = nothing) -> Sides:
    """The two stores of a training; without `val` one store is cut.

    Args:
        train: What is learned; None for the last store that was written here.
        val: What measures; None cuts it off.
        fraction: The share that is cut off; 0 for none.
        say: Told what was made on the way.

    Raises:
        NothingMatched: A side would be empty.
        StoreError: A store cannot be read.
    """
    learned = Path(train or last_store())
    if val is not None:
        return Sides(learned, Path(val))
    learned = without_evaluation(learned, say=say)
    return cut(learned, fraction, say=say) if fraction else Sides(learned, None)


def without_evaluation(train: Path, *, say: Say = nothing) -> Path:
    """The store, or one of its episodes that were not played for evaluation where it has such."""
    from trajkit.curate.select import select
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    store = open_store(train)
    if not (n_evaluation := summarize(store).purposes.get("eval", 0)):
        return train
    goal = Path(project().stores) / f"sft-{store.manifest.digest[:12]}-train"
    if not goal.exists():
        select(train, goal, where="purpose <> 'eval'")
    episodes = "evaluation episode" if n_evaluation == 1 else "evaluation episodes"
    say(f"{goal}  the store without its {n_evaluation:,} {episodes}")
    return goal


def cut(train: Path, fraction: float, *, say: Say = nothing) -> Sides:
    """The two sides of a store; those of an earlier cut are taken again."""
    from trajkit.curate.split import split
    from trajkit.store.reader import open_store

    digest = open_store(train).manifest.digest
    goal = Path(project().stores) / f"sft-{digest[:12]}-{fraction:g}"
    if not goal.exists():
        try:
            split(train, goal, ratio={"train": 1 - fraction, "val": fraction})
        except NothingMatched as error:
            hint = "--val names a store that measures, --val-fraction 0 measures nothing"
            raise NothingMatched(error.message, hint=hint) from error
        say(f"{goal}  the store, cut by world: {1 - fraction:.0%} to learn, {fraction:.0%} to measure")
    return Sides(goal / "train", goal / "val")


def pair_sides(
    method: str, train: str | None, val: str | None, fraction: float, *, say: Say = nothing
) -> Sides:
    """What is learned of pairs, and what measures; without `val` one is cut.

    Args:
        method: `dpo` or `kto`, which takes stores too.
        train: What is learned; None for the last pairs that were written here.
        val: What measures; None cuts it off.
        fraction: The share that is cut off; 0 for none.
        say: Told what was made on the way.

    Raises:
        RequestError: Nothing is named, and nothing was written here.
    """
    from trajkit.curate.pair_file import MANIFEST_NAME

    learned = Path(train or _last(method))
    if (learned / MANIFEST_NAME).is_file():
        if val is not None:
            return Sides(learned, Path(val))
        return _cut_pairs(learned, fraction, say) if fraction else Sides(learned, None)
    if method == "dpo":
        return Sides(learned, None)  # it says itself that it is none
    return sides(str(learned), val, fraction, say=say)


def _last(method: str) -> str:
    """The last pairs that were written here; for `kto` the last store, where no pairs were."""
    if (last := remembered("last_pairs")) is not None:
        return str(last["path"])
    if method == "kto":
        return last_store()
    raise RequestError("no --train, and no pairs were written here", hint="`trajkit pairs` writes some")


def _cut_pairs(train: Path, fraction: float, say: Say) -> Sides:
    """The two sides of a set of pairs; those of an earlier cut are taken again."""
    from trajkit.curate.pair_cut import TRAIN, VALIDATION, cut_pairs
    from trajkit.curate.pair_file import open_pairs

    pairs = open_pairs(train)
    goal = Path(project().stores) / f"pairs-{pairs.manifest.digest[:12]}-{fraction:g}"
    if not goal.exists():
        found = cut_pairs(pairs, goal, fraction=fraction)
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
    store: str | Path, wanted: str | None, *, choose: Choose = which_function, say: Say = nothing
) -> OfFunction:
    """A store whose learned steps are of one function.

    Args:
        store: Where the steps are.
        wanted: The function; None where nobody said.
        choose: Asks which, where there are several.
        say: Told what was made on the way.

    Raises:
        RequestError: There are several, and nobody chose; or there is none of this name.
    """
    from trajkit.curate.function import only_function
    from trajkit.store.dataset import open_dataset
    from trajkit.targets.origin import origin_of

    data = open_dataset(store)
    functions = origin_of(data).functions
    if wanted is None and len(functions) > 1:
        wanted = choose(functions, data.store.path)
    if wanted is None or functions == (wanted,):
        return OfFunction(Path(store), wanted or (functions[0] if functions else None))
    goal = Path(project().stores) / f"{wanted}-{data.store.manifest.digest[:12]}"
    if not goal.exists():
        done = only_function(store, goal, wanted)
        n_steps = sum(each.n_steps for each in done.masked)
        say(f"{goal}  {n_steps:,} {'step' if n_steps == 1 else 'steps'} of other functions are context only")
    return OfFunction(goal, wanted)
