"""What preferences are learned from, pairs or a store, and the rows that they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.pair_file import MANIFEST_NAME, Pairs, open_pairs
from trajkit.curation.rows.conversion import Conversion
from trajkit.curation.rows.file import convert
from trajkit.curation.rows.pairs import convert_pairs
from trajkit.errors import DataError, RequestError
from trajkit.formats.think import Thoughts
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.formats.trl import TRL_KTO, TRL_PREFERENCE
from trajkit.store.dataset import open_dataset
from trajkit.store.layout import MANIFEST_NAME as STORE_FILE
from trajkit.training.job import JobData
from trajkit.training.local.preference_tokens import Verdicts, tokenise_preferences, verdicts_of
from trajkit.training.local.prepare import ENDLESS
from trajkit.training.local.tokenised import Limit
from trajkit.training.side import Side, place_of


def opened(path: Path, method: str, *, good: str | None) -> Side:
    """The pairs, or for `kto` the store.

    Raises:
        RequestError: It is a store, and the method learns from pairs; or `good` is given for pairs.
        StoreError: It is neither, or cannot be read.
    """
    if (path / MANIFEST_NAME).is_file():
        if good is not None:
            raise RequestError("of pairs it is known which side is good", hint="leave --good out")
        return open_pairs(path)
    if method == "kto":
        return open_dataset(path)
    if not str(path).startswith(SAMPLE_PREFIX) and not (path / STORE_FILE).is_file():
        return open_pairs(path)  # which says what is missing
    raise RequestError(
        f"{path} is a store, and {method} learns from pairs",
        hint=f"trajkit pairs {path} --margin 0.1 -o PAIRS, then --train PAIRS",
    )


def refuse_mixed(train: Side, validation: Side | None) -> None:
    """Raise where one side is pairs and the other a store.

    Raises:
        RequestError: They are.
    """
    if validation is not None and isinstance(train, Pairs) != isinstance(validation, Pairs):
        pairs, store = (train, validation) if isinstance(train, Pairs) else (validation, train)
        raise RequestError(
            f"{place_of(pairs)} is pairs, and {place_of(store)} is a store: they cannot be compared",
            hint="--train and --val are both pairs, or both stores",
        )


def write_rows(
    side: Side,
    goal: Path,
    tokenizer: ChatTemplate,
    limit: Limit,
    *,
    method: str,
    good: str | None,
    thoughts: Thoughts,
    on_progress: Callable[[str, int, int | None], None],
) -> JobData:
    """Write the rows of one side, as text and as tokens.

    Args:
        side: Pairs or a store.
        goal: The file of tokens; the text is beside it.
        tokenizer: Of the job.
        limit: A longer row is an error.
        method: `dpo` or `kto`.
        good: Of a store: the episodes whose answers are good.
        thoughts: What becomes of thoughts.
        on_progress: Told what is being done.

    Raises:
        DataError: A row is too long or teaches nothing, or all answers are good, or all bad.
        NothingMatched: There is no row.
    """
    lines = goal.with_suffix(".jsonl")
    on_progress("writing rows", 0, None)
    made = _written(side, lines, method, good, thoughts)
    tally = tokenise_preferences(
        lines,
        goal,
        tokenizer,
        method=method,
        limit=limit,
        on_progress=lambda n_done: on_progress("counting tokens", n_done, made.n_rows),
    )
    if method == "kto":
        _refuse_one_sided(verdicts_of(goal), made.store)
    return JobData(
        store=made.store,
        digest=made.store_digest,
        n_episodes=made.n_episodes,
        n_steps=made.n_steps,
        n_learned=made.n_learned,
        n_rows=tally.n_rows,
        n_tokens=tally.n_tokens,
        n_learned_tokens=tally.n_learned,
        longest=tally.longest,
        left=made.left,
        losses=made.losses | ({ENDLESS: tally.n_endless} if tally.n_endless else {}),
    )


def _written(side: Side, lines: Path, method: str, good: str | None, thoughts: Thoughts) -> Conversion:
    # no rules of others': these rows stay on this machine
    judged = replace(TRL_KTO, target=None)
    if isinstance(side, Pairs):
        form = replace(TRL_PREFERENCE, target=None) if method == "dpo" else judged
        digest = side.manifest.digest
        return convert_pairs(side, lines, to=form, source=side.path, digest=digest, thoughts=thoughts)
    return convert(side, lines, to=judged, thoughts=thoughts, good=good)


def _refuse_one_sided(found: Verdicts, source: Path) -> None:
    for n, there, missing in ((found.n_bad, "good", "bad"), (found.n_good, "bad", "good")):
        if not n:
            raise DataError(
                f"every answer of {source} is {there}: without a {missing} one there is nothing to compare",
                hint="--good says which episodes are; where one side is small, --val-fraction 0",
            )
