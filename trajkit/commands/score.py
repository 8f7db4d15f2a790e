"""Add a metric that a function of your own computes."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from trajkit._core.output.console import Meter, count, line, plural, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Option, Output, StoreLike
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made


@flattened()
def score(
    store: StoreLike | None = None,
    *,
    with_: Annotated[str, Option(metavar="SCORER")],
    name: str,
    per: Literal["episode", "step"] = "episode",
    optimize: Literal["max", "min"] | None = None,
    max_bad: Annotated[int, Option(least=0)] = 0,
    new_run: bool = False,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Add a metric that a function of your own computes.

    A scorer takes an episode and returns a number, True or False, or None if it has no score. With --per step
    it takes a step; a step and its episode; or the messages of the prompt, the answer and the step, as the
    scorer of `trajkit evaluate --prompts` does:

        def has_answer(episode):
            return "answer:" in episode.steps[-1].completion.content[0].text

    An exception and NaN count as failed. The scores are kept in .trajkit until the store is written: the same
    command continues where it was stopped.

    Args:
        store: The store. Default: the last store written here.
        with_: The function: my.py:fn, or my_pkg.module:fn.
        name: The metric's name.
        per: Score episodes, or steps.
        optimize: Whether more is better, or less. Default: unknown.
        max_bad: How many may fail; their score stays unknown.
        new_run: Score everything again and ignore what an earlier run kept.
        output: The store to write.
        dry_run: Score, print the tally and write no store.

    Raises:
        RequestError: The function does not exist, or the metric does already.
        DataError: More than `max_bad` failed.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit score stores/train --with checks.py:has_answer --name has_answer -o stores/scored
    """
    from trajkit.curation.scores.score import score as score_episodes

    goal = None if dry_run else goal_of("score", output)
    with Meter() as meter:
        done = score_episodes(
            store_path(store),
            goal,
            scorer=with_,
            name=name,
            per=per,
            optimize=optimize,
            engine=engine_of(engine, meter.show),
            max_bad=max_bad,
            new_run=new_run,
            on_progress=meter.show,
        )
    if done.n_resumed:
        talk(f"{plural(done.n_resumed, 'episode')} were scored by an earlier run")
    for bad in done.bad:
        talk(f"not scored: {bad}")
    if n_more := done.n_bad - len(done.bad):
        talk(f"… and {count(n_more)} more")
    mean = "" if done.mean is None else f", mean {done.mean:.4g}"
    nothing = f"; no score for {count(done.n_none)}" if done.n_none else ""
    failed = f"; failed on {count(done.n_bad)}" if done.n_bad else ""
    head = line(f"{name}: {plural(done.n_scored, per)} scored{mean}{nothing}{failed}")
    more = {
        "n_scored": done.n_scored,
        "n_none": done.n_none,
        "n_bad": done.n_bad,
        "n_resumed": done.n_resumed,
        "mean": done.mean,
        "bad": [bad._asdict() for bad in done.bad],
    }
    return Made(done.entry, goal, done.manifest, done, more, head=head).kept()
