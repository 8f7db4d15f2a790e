"""Keep steps as context without learning them, for requested reasons, each of them counted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.masks.rule import judge
from trajkit.engines.engine import Engine
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Left, LineageEntry, Manifest
from trajkit.schema.base import Count, JsonObject, Model, Name
from trajkit.store.engine import literal


class MaskReason(StrEnum):
    """Why a step is not learned. A step with several reasons is counted under the first of them."""

    COPIED = "copied"
    """It was copied from another episode as context: its source says so (`is_copied_context`), or the same
    inference is in an episode that began earlier."""
    AFTER_SUCCESS = "after-success"
    """Success was certain before the step: an earlier step of a successful episode is terminated, or the rule
    given with `success` held from an earlier step to the end."""
    TRUNCATED = "truncated"
    """The token limit cut off the answer (`finish_reason`)."""
    UNPARSED = "unparsed"
    """No action could be read from the answer, so the environment executed its default."""
    INVALID = "invalid"
    """The answer names an action that the environment does not have."""
    NO_OP = "no-op"
    """The step changed no observation and earned no reward: the observation after it equals the one before.
    Tool calls that no environment executed are not judged, nor are steps after which another agent acts."""
    LOOP = "loop"
    """The same action was executed earlier in the episode at the same observation."""
    CACHED = "cached"
    """The answer came from the gateway's cache, and another learned step has the same prompt and answer.
    Judged last, among the remaining steps."""


REASON_TEXTS = {
    MaskReason.COPIED: "copied context",
    MaskReason.AFTER_SUCCESS: "after success",
    MaskReason.TRUNCATED: "truncated answer",
    MaskReason.UNPARSED: "answer not parsed",
    MaskReason.INVALID: "invalid action",
    MaskReason.NO_OP: "no-op",
    MaskReason.LOOP: "loop",
    MaskReason.CACHED: "cached duplicate",
}
"""The text in `mask_reason`."""


class MaskCount(Model):
    """Counts for one reason, over the steps that were learned before or had only the weight 0."""

    reason: Name
    """As on the command line."""
    n_masked: Count
    """Steps that are no longer learned for this reason, and for no earlier one in the order."""
    n_matched: Count
    """Steps for which the reason holds, whether or not others do."""
    n_unjudged: Count
    """Steps that lack a value the reason needs, such as an observation. They stay."""


class MaskReport(Model):
    """Counts of masked and learned steps."""

    reasons: tuple[MaskCount, ...]
    """By reason, in the order of `MaskReason`."""
    n_masked_before: Count
    """Steps that were already not learned. They keep their reason, unless it was only the weight 0."""
    n_learned_before: Count
    """Steps that were learned."""
    n_learned: Count
    """Steps that are still learned."""
    n_tokens_before: Count | None
    """Tokens of the answers that were learned; None if one is unknown."""
    n_tokens: Count | None
    """Tokens of the answers that are still learned; None if one is unknown."""


class Masked(NamedTuple):
    """The new store, its lineage entry and the counts."""

    manifest: Manifest | None
    """None if no store was written."""
    entry: LineageEntry
    report: MaskReport


def mask(
    path: str | Path,
    goal: Path | None,
    *,
    reasons: Sequence[MaskReason | str],
    success: str | None = None,
    threads: int | None = None,
    engine: Engine | None = None,
) -> Masked:
    """Write a store in which some steps are context only: `loss_weight` 0, with a `mask_reason`.

    The answer stays where it is, so that later steps keep their prompts. A step that is already not learned
    keeps its reason, unless that is only the weight 0, which another weighting could undo.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write; None only counts.
        reasons: The reasons to check, of `MaskReason`. Their order does not matter.
        success: For `after-success`: the condition for certain success, such as `episode_return >= 1` (the
            rewards so far) or a metric of steps, `progression >= 1`. None uses `terminated` alone.
        threads: None for one per core.
        engine: Writes the new store; None for this process.

    Raises:
        RequestError: No reason is given, or an unknown one; `success` without `after-success`.
        QueryError: `success` is not a rule, or names a column that steps do not have.
        NothingMatched: No step would still be learned.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    chosen = _chosen(reasons, success)
    arguments: JsonObject = {"reason": [reason.value for reason in chosen], "success": success}
    with deriving(path, threads=threads, engine=engine, goal=goal) as derivation:
        judge(derivation, [reason.value for reason in chosen], success)
        report = _report(derivation, chosen)
        masked = [
            Left(reason=REASON_TEXTS[MaskReason(each.reason)], n_steps=each.n_masked)
            for each in report.reasons
        ]
        entry = derivation.entry(verb="mask", arguments=arguments, masked=masked)
        if goal is None:
            return Masked(None, entry, report)
        if not report.n_learned:
            counts = ", ".join(f"{each.n_masked:,} {each.reason}" for each in report.reasons)
            raise NothingMatched(
                f"mask leaves no step of {derivation.store.path} to learn",
                hint=f"{counts}; {report.n_masked_before:,} were not learned before",
            )
        manifest = derivation.write(
            goal, verb="mask", arguments=arguments, steps=_masked_steps(derivation, chosen), masked=masked
        )
        return Masked(manifest, manifest.lineage[-1], report)


def _chosen(reasons: Sequence[MaskReason | str], success: str | None) -> list[MaskReason]:
    known = [reason.value for reason in MaskReason]
    for reason in reasons:
        if reason not in known:
            raise RequestError(f"no reason {str(reason)!r} to mask for", hint=f"reasons: {', '.join(known)}")
    if not reasons:
        raise RequestError("no reason is given: nothing is masked unasked", hint=f"of {', '.join(known)}")
    if success is not None and MaskReason.AFTER_SUCCESS not in reasons:
        raise RequestError("--success is about --reason after-success, which is not given")
    return [reason for reason in MaskReason if reason in reasons]


def _report(derivation: Derivation, chosen: Sequence[MaskReason]) -> MaskReport:
    connection = derivation.connection
    columns = ", ".join(
        f"count(*) FILTER (WHERE position = {place}), "
        f"count(*) FILTER (WHERE found[{place}]), count(*) FILTER (WHERE found[{place}] IS NULL)"
        for place in range(1, len(chosen) + 1)
    )
    (counted,) = connection.execute(f"SELECT {columns} FROM trajkit_judged").fetchall()
    (rest,) = connection.execute(
        """
        SELECT count(*) FILTER (WHERE NOT was), count(*) FILTER (WHERE was), count(*) FILTER (WHERE stays),
            CASE WHEN count(*) FILTER (WHERE was AND n IS NULL) = 0
                THEN coalesce(sum(n) FILTER (WHERE was), 0) END,
            CASE WHEN count(*) FILTER (WHERE stays AND n IS NULL) = 0
                THEN coalesce(sum(n) FILTER (WHERE stays), 0) END
        FROM (SELECT n_output_tokens AS n, coalesce(is_learned, false) AS was,
                     coalesce(is_learned, false) AND position IS NULL AS stays
              FROM steps LEFT JOIN trajkit_judged USING (episode_id, step_index))
        """
    ).fetchall()
    n_masked_before, n_learned_before, n_learned, n_tokens_before, n_tokens = rest
    return MaskReport(
        reasons=tuple(
            MaskCount(
                reason=reason.value,
                n_masked=counted[3 * place],
                n_matched=counted[3 * place + 1],
                n_unjudged=counted[3 * place + 2],
            )
            for place, reason in enumerate(chosen)
        ),
        n_masked_before=n_masked_before,
        n_learned_before=n_learned_before,
        n_learned=n_learned,
        n_tokens_before=n_tokens_before,
        n_tokens=n_tokens,
    )


def _masked_steps(derivation: Derivation, chosen: Sequence[MaskReason]) -> str:
    """Create a view of the steps with their new masks."""
    texts = ", ".join(literal(REASON_TEXTS[reason]) for reason in chosen)
    derivation.connection.execute(
        "CREATE OR REPLACE TEMP TABLE trajkit_masked AS SELECT episode_id, step_index, "
        f"[{texts}][position] AS mask_text FROM trajkit_judged WHERE position IS NOT NULL"
    )
    derivation.connection.execute(
        "CREATE OR REPLACE TEMP VIEW trajkit_masked_steps AS SELECT s.* REPLACE ("
        "CASE WHEN mask_text IS NULL THEN s.loss_weight ELSE 0 END AS loss_weight, "
        "coalesce(mask_text, s.mask_reason) AS mask_reason) "
        "FROM steps s LEFT JOIN trajkit_masked USING (episode_id, step_index)"
    )
    return "trajkit_masked_steps"
