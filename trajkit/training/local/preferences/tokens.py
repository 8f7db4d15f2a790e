"""Tokenise preference rows into a file that training memory-maps.

TRL's own tokenisation cuts rows at 1,024 tokens, drops rows of which nothing is left, and takes as the
completion whatever a template renders differently after a prompt. Here the completion is what the template
marks, with the token that ends the turn; the prompt is everything before it; and nothing is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit._core.files import replacing
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.training.local.tokens.tokenised import Encoded, Limit, TokenTally, refuse_unknown, write_tokens

_TOKENS = pa.list_(pa.int32())
_SIDES = {"dpo": ("chosen", "rejected"), "kto": ("completion",)}
SCHEMAS: dict[str, pa.Schema] = {
    "dpo": pa.schema({"prompt_ids": _TOKENS, "chosen_ids": _TOKENS, "rejected_ids": _TOKENS}),
    "kto": pa.schema({"prompt_ids": _TOKENS, "completion_ids": _TOKENS, "label": pa.bool_()}),
}
"""The columns that TRL's trainers read, by method."""


class Verdicts(NamedTuple):
    """The numbers of good and bad completions."""

    n_good: int
    """Completions that the model should give."""
    n_bad: int
    """Completions that it should not give."""


class _Answer(NamedTuple):
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    has_end: bool


def tokenise_preferences(
    rows: Path,
    goal: Path,
    tokenizer: ChatTemplate,
    *,
    method: str,
    limit: Limit,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> TokenTally:
    """Tokenise rows of preferences (`trajkit.formats.trl`) into a file.

    Args:
        rows: JSON lines.
        goal: The new file: an Arrow stream in the form of `SCHEMAS[method]`.
        tokenizer: The model's tokenizer.
        method: `dpo` or `kto`.
        limit: A longer prompt with its completion is an error; nothing is cut.
        on_progress: Called with the number of finished rows.

    Raises:
        DataError: A row is too long, or trains no token.
        RequestError: The chat template cannot render a row or does not mark its completion, or the tokenizer
            does not belong to the model.
    """
    schema = SCHEMAS[method]

    def encode(row: dict[str, Any], place: str) -> Encoded:
        answers = _answers(row, place, tokenizer, _SIDES[method])
        tokens = chain.from_iterable((*answer.prompt, *answer.tokens) for answer in answers)
        refuse_unknown(tokens, tokenizer, limit)
        ids = {f"{side}_ids": each.tokens for side, each in zip(_SIDES[method], answers, strict=True)}
        return Encoded(
            {"prompt_ids": answers[0].prompt, **ids, "label": row.get("label")},
            [len(answer.prompt) + len(answer.tokens) for answer in answers],
            sum(len(answer.tokens) for answer in answers),
            sum(not answer.has_end for answer in answers),
        )

    with (
        replacing(goal) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
    ):
        ways = "shorter episodes pair too"
        return write_tokens(rows, writer, schema, encode, limit, ways, on_progress)


def verdicts_of(path: Path) -> Verdicts:
    """Count the good and the bad completions of a `kto` file that `tokenise_preferences` wrote."""
    with pa.memory_map(str(path)) as source:
        labels: list[Any] = pa.ipc.open_stream(source).read_all().column("label").to_pylist()
    return Verdicts(sum(labels), len(labels) - sum(labels))


def _answers(
    row: Mapping[str, Any], place: str, tokenizer: ChatTemplate, sides: Sequence[str]
) -> list[_Answer]:
    found = [_answer(row["prompt"] + row[side], row.get("tools"), place, tokenizer) for side in sides]
    if any(answer.prompt != found[0].prompt for answer in found):
        raise RequestError(
            f"{place}: the chat template of {tokenizer.name} renders another prompt before each completion",
            hint="pairs need a template whose prompt does not depend on the completion",
        )
    if len(found) > 1 and found[0].tokens == found[1].tokens:
        raise DataError(
            f"{place}: the chat template of {tokenizer.name} renders both completions alike",
            hint="it may leave out tool calls; then the model cannot learn the difference",
        )
    return found


def _answer(messages: Sequence[Any], tools: Any, place: str, tokenizer: ChatTemplate) -> _Answer:
    try:
        rendered = tokenizer.render(messages, tools)
    except RequestError as error:
        raise RequestError(f"{place}: {error.message}", hint=error.hint) from error
    start, end = rendered.spans[-1]
    if not rendered.is_sure and rendered.tokens[:start] != tokenizer.prompt(messages[:-1], tools):
        raise RequestError(
            f"{place}: the chat template of {tokenizer.name} does not mark completions, and renders the"
            " prompt differently before one",
            hint="use a --chat-template that marks assistant messages with {% generation %}",
        )
    if start == end:
        raise DataError(
            f"{place}: the chat template of {tokenizer.name} gives the completion no token",
            hint="mark assistant messages with {% generation %} and {% endgeneration %}",
        )
    tokens = rendered.tokens
    ends = [at + 1 for at in range(start, end) if tokens[at] in tokenizer.stops]
    if not ends and end < len(tokens) and tokens[end] in tokenizer.stops:
        ends = [end + 1]  # some templates leave the end token out of the mark
    # tokens that the template adds after the end of the turn are not learned
    return _Answer(tokens[:start], tokens[start : ends[-1] if ends else end], bool(ends))
