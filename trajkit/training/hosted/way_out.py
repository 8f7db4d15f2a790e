"""What to do about a job that failed at a service, by the words with which services say so.

The words are those of OpenAI's service as users met them, which those that took its interface over repeat.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class _Failure(NamedTuple):
    code: str | None
    words: str
    hint: str


_LOOK = "`trajkit validate {rows} --target {rules}` looks at the same rows; report it if that finds nothing"

_FAILURES = (
    _Failure(
        "training_not_available",
        r"winding down the fine-tuning|training_not_available",
        "train on this machine with `trajkit sft local`, or at another service that takes the same rows:"
        " `trajkit sft openai --profile azure`, `trajkit sft together`, `trajkit sft fireworks`",
    ),
    _Failure(
        "invalid_n_examples",
        r"must have at least \d+ example",
        "export more episodes, or use --unit step and --val-fraction 0, which leave more rows to learn",
    ),
    _Failure(
        None,
        r"starts with|where every line is a JSON",
        "a byte order mark before the first line does that: `trajkit validate {rows} --target {rules} --fix`"
        " says which the service wants",
    ),
    _Failure(
        None,
        r"invalid token",
        "a text holds one of the model's special tokens: `trajkit validate {rows} --target {rules}` finds"
        " every such row",
    ),
    _Failure(
        None,
        r"moderation|refusals|safety|usage polic",
        "the service's safety checks refused the tuned model or the rows: look at what the rows say with"
        " `trajkit show`, and leave such episodes out with `trajkit select`",
    ),
    _Failure(
        "exceeded_quota",
        r"quota|billing|insufficient (?:funds|credit)|hard limit",
        "the account has no credit left, or too many jobs at once: see its billing page, then start again",
    ),
    _Failure(
        "invalid_file_format",
        r"invalid file format|missing key|cannot be parsed|file format error|extra \"",
        _LOOK,
    ),
    _Failure(
        "invalid_training_file",
        r"invalid training file",
        _LOOK,
    ),
)


def way_out(code: str | None, text: str, *, rows: Path, rules: str) -> str | None:
    """What a user can do about a failure; None where the words are not known.

    Args:
        code: The service's name for it.
        text: Its words.
        rows: The file that was uploaded.
        rules: Whose rules it was checked by.
    """
    for failure in _FAILURES:  # words first: one code covers several causes
        if re.search(failure.words, text, re.IGNORECASE):
            return failure.hint.format(rows=rows, rules=rules)
    for failure in _FAILURES:
        if code is not None and code == failure.code:
            return failure.hint.format(rows=rows, rules=rules)
    return None
