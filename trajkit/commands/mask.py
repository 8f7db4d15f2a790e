"""Keep steps in the context that are not worth learning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from trajkit._core.output.console import Cell, Meter, count, plural, table_text, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Option, Output, StoreLike, many
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.result import Made

if TYPE_CHECKING:
    from trajkit.curation.masks.mask import MaskReport

Reason = Literal["copied", "after-success", "truncated", "unparsed", "invalid", "no-op", "loop", "cached"]


@flattened()
def mask(
    store: StoreLike | None = None,
    *,
    reason: Annotated[Reason | Iterable[str], Option(is_repeated=True)] = (),
    success: Annotated[str | None, Option(metavar="RULE")] = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Made:
    """Keep steps as context only: their answers stay in later prompts and are not learned.

    A step for which several reasons hold is counted under the first of them in this order:

        copied         copied from another episode as context
        after-success  an earlier step ended a successful episode, or --success held at one
        truncated      the token limit cut the answer off
        unparsed       the answer names no action
        invalid        the answer names an action that the environment does not have
        no-op          the observation stayed the same, and no reward was earned
        loop           the same action was done earlier in the episode at the same observation
        cached         from the gateway's cache, and the same answer to the same prompt is learned elsewhere

    Observations may be equal even if the world is not: a no-op or a loop is judged by the text alone. A step
    that lacks the value that a reason needs stays, and is counted as not judged. Tool calls of a conversation
    are not judged as no-ops: a tool may return the same result twice.

    Args:
        store: The store. Default: the last store written here.
        reason: Mask steps for this reason. Default: none; with --dry-run each.
        success: For after-success: when success is certain, such as 'episode_return >= 1' (the sum of rewards
            so far).
        output: The store to write.
        dry_run: Print the tally and write nothing.

    Raises:
        RequestError: There is no such reason, or none is given.
        NothingMatched: No step is left to learn.
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit mask stores/goto --reason invalid --reason loop
    """
    from trajkit.curation.masks.mask import MaskReason
    from trajkit.curation.masks.mask import mask as mask_steps

    reasons = many(reason) or (tuple(MaskReason) if dry_run else ())
    goal = None if dry_run else goal_of("mask", output)
    with Meter() as meter:
        made = mask_steps(
            store_path(store), goal, reasons=reasons, success=success, engine=engine_of(engine, meter.show)
        )
    report = made.report
    tokens = "" if report.n_tokens is None else f", {plural(report.n_tokens, 'token')} of answers"
    talk(f"learned: {count(report.n_learned)} of {plural(report.n_learned_before, 'step')}{tokens}")
    more = {"report": report.model_dump(mode="json")}
    return Made(made.entry, goal, made.manifest, report, more, head=_table(report)).kept()


def _table(report: MaskReport) -> str:
    headings = ("masked", "it holds for", "not judged")
    return table_text(
        [Cell("reason"), *(Cell(heading, is_number=True) for heading in headings)],
        [
            (each.reason, count(each.n_masked), count(each.n_matched), count(each.n_unjudged))
            for each in report.reasons
        ],
    )
