"""Write the rows of a training on this machine, as text and as tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trajkit.curation.pair_file import Pairs
from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.request import Overlong
from trajkit.curation.rows.writers.pairs import convert_pairs
from trajkit.errors import DataError, NothingMatched
from trajkit.formats.base import Format, Unit
from trajkit.formats.chat.think import Thoughts
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.formats.trl import TRL_KTO, TRL_PREFERENCE
from trajkit.formats.weighted import WEIGHTED
from trajkit.training.job import JobData
from trajkit.training.local.outcome.finish import TOKENIZER
from trajkit.training.local.preferences.tokens import Verdicts, tokenise_preferences, verdicts_of
from trajkit.training.local.tokens.tokenised import Limit, tokenise
from trajkit.training.side import Side

ENDLESS = "end of turn that the chat template does not write"
"""Loss of conversion: without an end token, the model cannot learn to stop."""


def write_rows(
    side: Side,
    goal: Path,
    tokenizer: ChatTemplate,
    limit: Limit,
    *,
    method: str,
    unit: Unit,
    thoughts: Thoughts,
    overlong: Overlong,
    good: str | None,
    is_learned: bool,
    on_progress: Callable[[str, int, int | None], None],
) -> JobData:
    """Write the rows of one side of a job.

    side: Pairs or a store.
    goal: File for the tokens; the text is written beside it.
    tokenizer: Tokenizer of the job, saved beside the file.
    limit: A longer row is an error.
    method: `sft`, `dpo` or `kto`.
    unit: Content of an `sft` row.
    thoughts: Treatment of thoughts.
    overlong: Treatment of `sft` rows that are too long.
    good: Condition on a store's episodes with good completions, for `kto`.
    is_learned: Whether it is the training side.
    on_progress: Called with the current phase.

    Raises:
        DataError: A row is too long or trains no token, or all completions are good or all are bad.
        NothingMatched: There is no row.
    """
    lines = goal.with_suffix(".jsonl")
    on_progress("writing rows", 0, None)
    options: dict[str, Any] = {"thoughts": thoughts}
    if method == "sft":
        options["unit"] = unit
        if overlong != Overlong.ERROR:  # otherwise tokens would be counted twice
            tokens = {"max_length": limit.n_tokens, "tokenizer": str(goal.parent / TOKENIZER)}
            options |= {"overlong": overlong, **tokens}
    elif good is not None:
        options["good"] = good
    try:
        made = _written(side, lines, method, on_progress, options)
    except NothingMatched as error:
        if is_learned:
            raise
        raise NothingMatched(
            f"no validation rows: {error.message}", hint="more episodes, another --val, or --val-fraction 0"
        ) from error

    def counted(n_done: int) -> None:
        on_progress("counting tokens", n_done, made.n_rows)

    if method == "sft":
        tally = tokenise(lines, goal, tokenizer, limit=limit, on_progress=counted)
    else:
        tally = tokenise_preferences(lines, goal, tokenizer, method=method, limit=limit, on_progress=counted)
    if method == "kto":
        _refuse_one_sided(verdicts_of(goal), made.store)
    return JobData.of(
        made,
        n_rows=tally.n_rows,
        n_tokens=tally.n_tokens,
        n_learned_tokens=tally.n_learned,
        longest=tally.longest,
        losses=made.losses | ({ENDLESS: tally.n_endless} if tally.n_endless else {}),
    )


def _written(
    side: Side,
    lines: Path,
    method: str,
    on_progress: Callable[[str, int, int | None], None],
    options: dict[str, Any],
) -> Conversion:
    # without the rules of a hosted service: these rows stay on this machine
    judged, compared = replace(TRL_KTO, target=None), replace(TRL_PREFERENCE, target=None)
    forms: dict[str, Format] = {"sft": WEIGHTED, "dpo": compared, "kto": judged}
    if isinstance(side, Pairs):
        digest = side.manifest.digest
        return convert_pairs(side, lines, to=forms[method], source=side.path, digest=digest, **options)
    progress = lambda n_done, n_total: on_progress("writing rows", n_done, n_total)  # noqa: E731
    return convert(side, lines, to=forms[method], progress=progress, **options)


def _refuse_one_sided(found: Verdicts, source: Path) -> None:
    for n, there, missing in ((found.n_bad, "good", "bad"), (found.n_good, "bad", "good")):
        if not n:
            raise DataError(
                f"every completion of {source} is {there}: kto needs {missing} ones, too",
                hint="--good selects the good episodes; where one side is small, --val-fraction 0",
            )
