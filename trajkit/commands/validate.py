"""Check a training file by the rules of its service or trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from trajkit._core.address import place_of
from trajkit._core.output.console import Meter, count, notes, talk
from trajkit.commands.options.types import Count, DataFile, Option, Output
from trajkit.commands.place import path_or_none
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.formats.validation.file import Validation

Target: TypeAlias = Literal["openai", "azure", "nebius", "together", "fireworks", "trl"]
"""A service or a trainer that a training file is for."""


def validate(
    file: DataFile,
    *,
    target: Target,
    suffix: Annotated[str | None, Option(metavar="NAME")] = None,
    tokenizer: Annotated[str | None, Option(metavar="NAME")] = None,
    max_length: Count | None = None,
    fix: bool = False,
    output: Output = None,
) -> Validation:
    """Check a training file by the rules of its service or trainer.

    Each finding has its line, its place in the row, the value there and how to fix it. Exit 1 when the file
    would be refused. --fix repairs only how a row is written, never what it teaches: a byte order mark, blank
    lines, extra keys, weights of other messages than the assistant's, arguments as text or as object.

    Args:
        file: JSON lines or Parquet.
        target: The service or the trainer that the file is for.
        suffix: Also check this suffix of the tuned model's name.
        tokenizer: Count what is learned: a model's folder or id, tiktoken:o200k_base, or estimate.
        max_length: The trainer's token limit per row: count what it cuts off. Needs --tokenizer.
        fix: Write a copy, repaired where that is safe, to -o.
        output: The copy that --fix writes.

    Raises:
        RequestError: Options do not go together.
        DataError: The file cannot be read at all.

    Example:
        trajkit validate train.jsonl --target openai
    """
    from trajkit.formats.validation.file import validate as validate_file

    if fix != (output is not None):
        raise RequestError("--fix and -o go together: the file itself is never changed")
    if max_length is not None and tokenizer is None:
        raise RequestError("--max-length is in tokens, and needs --tokenizer to count them")
    with Meter() as meter:
        found = validate_file(
            place_of(file),
            target=target,
            suffix=suffix,
            tokenizer=tokenizer,
            max_length=max_length,
            repair_to=path_or_none(output),
            on_progress=lambda n_done, n_total: meter.show("reading", n_done, n_total),
        )
    notes(() if found.loss is None else found.loss.notes)
    for repair, number in found.repairs.items():
        talk(f"repaired: {repair}: {count(number)}")
    if found.repaired_path is not None:
        talk(f"{found.repaired_path} holds the repaired copy; the findings are about it")
    return found
