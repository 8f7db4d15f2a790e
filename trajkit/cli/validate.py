"""`trajkit validate`: what would be refused, before it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console

if TYPE_CHECKING:
    from trajkit.formats.validation.file import Validation
    from trajkit.formats.validation.loss import LossReport

TARGETS = ("openai", "azure", "nebius", "together", "fireworks", "trl")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", required=True, type=click.Choice(TARGETS), help="Who the file is for.")
@click.option("--suffix", metavar="NAME", help="Check this suffix of the tuned model's name too.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Count what is learned: a model's folder or id, tiktoken:o200k_base, or estimate.",
)
@click.option(
    "--max-length",
    type=click.IntRange(min=1),
    metavar="N",
    help="The trainer's limit of tokens in a row: say what it cuts off. Needs --tokenizer.",
)
@click.option("--fix", is_flag=True, help="Write a copy, repaired where that is safe, to -o.")
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The copy that --fix writes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def validate(
    context: click.Context,
    file: Path,
    target: str,
    suffix: str | None,
    tokenizer: str | None,
    max_length: int | None,
    fix: bool,
    goal: Path | None,
    as_json: bool,
) -> None:
    """Check FILE, a training file of JSON lines or Parquet, by the rules of those it is for.

    Each finding has its line, its place in the row, what stands there and how to mend it. Exit 1 when the
    file would be refused. --fix repairs only how a row is written, never what it teaches: a byte order mark,
    blank lines, extra keys, weights of other messages than the assistant's, arguments as text or as object.
    """
    from trajkit.formats.validation.file import validate as validate_file

    if fix != (goal is not None):
        raise click.UsageError("--fix and -o go together: the file itself is never changed")
    if max_length is not None and tokenizer is None:
        raise click.UsageError("--max-length is in tokens: say who counts them with --tokenizer")
    with console.Meter() as meter:
        found = validate_file(
            file,
            target=target,
            suffix=suffix,
            tokenizer=tokenizer,
            max_length=max_length,
            repair_to=goal,
            on_progress=lambda n_done, n_total: meter.show("reading", n_done, n_total),
        )
    if as_json:
        console.result_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if found.n_errors:
        context.exit(1)


def _print(found: Validation) -> None:
    for finding in found.findings:
        console.result(f"{finding.severity}: {finding}")
        console.result(f"    {finding.hint}")
    shown = {kind: sum(finding.kind == kind for finding in found.findings) for kind in found.counts}
    for kind, number in found.counts.items():
        if number > shown[kind]:
            console.result(f"and {console.count(number - shown[kind])} more: {kind}")
    if found.loss is not None:
        print_loss(found.loss)
    for what, number in found.repairs.items():
        console.talk(f"repaired: {what}: {console.count(number)}")
    if found.repaired_path is not None:
        console.talk(f"{found.repaired_path} holds the repaired copy; what is said here is about it")
    verdict = "would be refused" if found.n_errors else "would be taken"
    numbers = f"{console.plural(found.n_errors, 'error')}, {console.plural(found.n_warnings, 'warning')}"
    rows = f"{console.plural(found.n_rows, 'row')}  {console.size(found.n_bytes)}"
    console.result(f"{found.path}  {rows}  {numbers}: {verdict} by {found.target}")


def print_loss(loss: LossReport) -> None:
    """A table of what is learned, with what a user should know below it."""
    limit = "" if loss.max_length is None else f" of at most {console.count(loss.max_length)} tokens"
    rows = [
        (f"rows{limit}", loss.n_rows),
        ("tokens", loss.n_tokens),
        ("tokens that carry loss", loss.n_learned),
        *((f"tokens of a row, {name}", number) for name, number in loss.quantiles.items()),
        ("rows without loss", loss.n_without_loss),
    ]
    if loss.max_length is not None:
        rows += [
            ("rows that the limit cuts", loss.n_cut),
            ("rows that lose a part of the answer", loss.n_answers_cut - loss.n_answers_gone),
            ("rows that lose the whole answer", loss.n_answers_gone),
        ]
    if loss.n_endless is not None:
        rows.append(("rows that do not learn to end", loss.n_endless))
    by = f"by {loss.tokenizer}"
    console.table(
        [console.Cell(by if loss.is_exact else f"{by} (an estimate)"), console.Cell("", is_number=True)],
        [(name, console.count(number)) for name, number in rows],
    )
    for note in loss.notes:
        console.talk(f"note: {note}")
