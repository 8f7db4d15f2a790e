"""Say what of a store is worth learning, and how much: masks, weights, scores, pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trajkit._core.settings import remember
from trajkit.commands.place import Many, Place, StoreLike, goal_of, many, store_path
from trajkit.commands.result import Made

if TYPE_CHECKING:
    from pathlib import Path

    from trajkit.curation.pair_file import PairsManifest
    from trajkit.curation.pairs import PairsReport
    from trajkit.schema import LineageEntry


def mask(
    store: StoreLike | None = None,
    *,
    reason: Many = (),
    success: str | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Keep steps as context only: their answers stay in later prompts and are not learned.

    Args:
        store: The store; None for the last one that was written here.
        reason: copied, after-success, truncated, unparsed, invalid, no-op, loop, cached; a dry run without
            any counts each.
        success: For after-success: when it is certain, as in `episode_return >= 1`.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: There is no such reason, or none is given.
        NothingMatched: No step is left to learn.
    """
    from trajkit.curation.mask import MaskReason
    from trajkit.curation.mask import mask as mask_store

    reasons = many(reason) or (tuple(MaskReason) if dry_run else ())
    goal = None if dry_run else goal_of("mask", output)
    made = mask_store(store_path(store), goal, reasons=reasons, success=success)
    return Made(made.entry, goal, made.manifest, made.report).kept()


def weight(
    store: StoreLike | None = None,
    *,
    scheme: Literal["uniform", "return", "return-to-go", "advantage", "exponential"],
    score: str | None = None,
    gamma: float | None = None,
    baseline: Literal["group", "task"] | None = None,
    by: Many = (),
    temperature: float | None = None,
    clip: float | None = None,
    normalize: Literal["none", "task", "all"] | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Give each learned step its weight in training, from what its episode earned.

    Args:
        store: The store; None for the last one that was written here.
        scheme: How a weight comes from what an episode earned.
        score: The metric that it earned; None for `episode_return`, else `total_reward`.
        gamma: Of return-to-go: the discount, 1 for none.
        baseline: What the mean is over; None for group.
        by: What makes a group; none for environment, task and seed.
        temperature: Of exponential; None for 1.
        clip: Of exponential: the largest weight; None for 20.
        normalize: Divide by the mean size of the weights of each task, or of all; None for none.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: An option does not go with the scheme.
        QueryError: There is no such metric or column.
    """
    from trajkit.curation.weight import weight as weight_store

    given: dict[str, Any] = {
        "score": score,
        "gamma": gamma,
        "baseline": baseline,
        "by": many(by),
        "temperature": temperature,
        "clip": clip,
        "normalize": normalize,
    }
    goal = None if dry_run else goal_of("weight", output)
    options = {name: value for name, value in given.items() if value not in (None, ())}
    made = weight_store(store_path(store), goal, scheme=scheme, **options)
    return Made(made.entry, goal, made.manifest, made.report).kept()


def score(
    store: StoreLike | None = None,
    *,
    with_: str,
    name: str,
    per: Literal["episode", "step"] = "episode",
    optimize: Literal["max", "min"] | None = None,
    processes: int = 1,
    max_bad: int = 0,
    new_run: bool = False,
    output: Place | None = None,
    dry_run: bool = False,
) -> Made:
    """Add a metric from a function of your own. What was scored is kept until the store is written.

    Args:
        store: The store; None for the last one that was written here.
        with_: The function: `my.py:fn`, or `my_pkg.module:fn`.
        name: The metric's name.
        per: What is scored.
        optimize: Whether more is better, or less; None where nobody says.
        processes: How many score side by side.
        max_bad: How many it may fail on; those stay unknown.
        new_run: Score everything again.
        output: The store to write; None for one in the folder of stores.
        dry_run: Score, and write no store.

    Raises:
        RequestError: The function is not there, or the name is taken.
        DataError: It failed on more than `max_bad`.
    """
    from trajkit.curation.score import score as score_store

    goal = None if dry_run else goal_of("score", output)
    done = score_store(
        store_path(store),
        goal,
        scorer=with_,
        name=name,
        per=per,
        optimize=optimize,
        processes=processes,
        max_bad=max_bad,
        new_run=new_run,
    )
    return Made(done.entry, goal, done.manifest, done).kept()


@dataclass(frozen=True)
class Pairs:
    """Preference pairs that were written; after a dry run only how many there would be."""

    entry: LineageEntry
    """What was done: in, out, and what left by reason."""
    report: PairsReport
    """How many, how many were verified, and what a reader should know."""
    path: Path | None = None
    """Their folder; None after a dry run."""
    manifest: PairsManifest | None = None
    """What they say about themselves; None after a dry run."""


def pairs(
    store: StoreLike | None = None,
    *,
    match: Literal["state", "prompt", "demonstration"] = "state",
    level: Literal["step", "episode"] = "step",
    margin: float | None = None,
    per_state: int = 1,
    same_prompt: bool = False,
    score: str | None = None,
    by: Many = (),
    include_eval: bool = False,
    no_verify: bool = False,
    env: str | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Pairs:
    """Write preference pairs: a better and a worse continuation of one state.

    Args:
        store: The store; None for the last one that was written here.
        match: What the two sides have in common.
        level: A side is one answer, or all turns from there to the end.
        margin: How much better the chosen episode is at least; needed but for demonstrations.
        per_state: At most so many pairs from one state.
        same_prompt: By state: only where the model also saw the same prompt.
        score: The metric to compare by; None for `episode_return`, else `total_reward`.
        by: What keeps episodes together in a split; none for environment, task and seed.
        include_eval: Pair evaluation episodes too; they must not train.
        no_verify: Do not replay the episodes.
        env: The environment to replay in; None for that of the store.
        output: The folder to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: An option is missing or does not go with the others.
        NothingMatched: There is no pair.
    """
    from trajkit.curation.pairs import pairs as pair_store

    goal = None if dry_run else goal_of("pairs", output)
    made = pair_store(
        store_path(store),
        goal,
        verify=not no_verify,
        match=match,
        level=level,
        margin=margin,
        per_state=per_state,
        same_prompt=same_prompt,
        score=score,
        by=many(by),
        include_eval=include_eval,
        env=env,
    )
    if goal is not None and made.manifest is not None:
        remember("last_pairs", {"path": str(goal.absolute())})
    return Pairs(made.entry, made.report, goal, made.manifest)
