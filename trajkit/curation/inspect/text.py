"""Write what `trajkit inspect` found as sections, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trajkit._core.output.console import Cell, Styled, count, plural, size, styled, table_text, width_of
from trajkit.curation.inspect.model import Example, Inspection
from trajkit.curation.redaction.shape import PERSONAL

_WIDTH = 110
"""Columns of a text that is set where there is no terminal."""


class Section(NamedTuple):
    """A heading with a table, and lines below it."""

    title: str
    headings: tuple[str, ...]
    """Empty texts for a table without a header."""
    rows: Sequence[tuple[str, ...]]
    lines: Sequence[str] = ()


def about(found: Inspection) -> Iterator[str]:
    """Yield what it is, and which part of it was read, as lines."""
    what = "a store" if found.format == "store" else f"read as {found.format}"
    yield what if found.n_bytes is None else f"{what}, {size(found.n_bytes)}"
    if found.sample is not None:
        share = found.sample.share
        part = found.sample.how if share is None else f"{share:.2%} of the bytes ({found.sample.how})"
        yield f"only a part was read: {part}"
        if found.times is None:
            yield "every count is of this part; the size of the whole is not known"
        else:
            yield "counts are of this part; ~ is an estimate of the whole"


def sections(found: Inspection) -> Iterator[Section]:
    """Yield the sections in the order of the page."""
    yield Section("How much", ("", ""), list(_size(found)))
    yield _trainable(found)
    yield _scored(found)
    yield _failed(found)
    yield _repeated(found)
    yield _secret(found)
    if found.leaked is not None:
        leaked = found.leaked
        rows = [(name, count(n)) for name, n in leaked.found.items()]
        verdict = "they leak: do not train on them" if leaked.n_blocking else "no leak"
        line = f"compared with {leaked.against} ({plural(leaked.n_episodes, 'episode')}): {verdict}"
        yield Section("Shared with the evaluation set", ("", ""), rows, [line])


def example_rows(example: Example) -> list[tuple[str, str]]:
    """Return what is told about an example, as names and texts."""
    facts = [plural(example.n_steps, "step"), f"outcome {example.outcome}"]
    if example.score is not None:
        facts.insert(0, f"score {example.score:.4g}")
    rows = [("what", ", ".join(facts))]
    if example.task is not None:
        rows.append(("task", example.task))
    return [*rows, ("first prompt", example.first_prompt or "-"), ("last answer", example.last_answer or "-")]


def _size(found: Inspection) -> Iterator[tuple[str, str]]:
    number = found.size
    if number.n_documents is not None:
        yield "documents", _whole(found, number.n_documents)
    yield "episodes", _whole(found, number.n_episodes)
    yield "steps", _whole(found, number.n_steps)
    logged = [
        f"{_whole(found, n)} {what}"
        for n, what in ((number.n_input_tokens, "in"), (number.n_output_tokens, "out"))
        if n is not None
    ]
    if logged:
        some = f"; {plural(number.n_steps_uncounted, 'step')} without" if number.n_steps_uncounted else ""
        yield "tokens, as logged", f"{', '.join(logged)}{some}"
    if number.n_steps_uncounted:
        text = "each message once, at 4 bytes a token"
        yield "tokens, an estimate", f"{_whole(found, number.n_tokens_estimated)} of text: {text}"


def _whole(found: Inspection, number: int) -> str:
    """A count, and of a part what it makes of the whole."""
    times = found.times
    if found.sample is None or times is None:
        return count(number)
    return f"{count(number)} (~ {count(_round(number * times))})"


def _round(number: float) -> int:
    """An estimate with three digits: more would say that they are known."""
    return int(float(f"{number:.3g}"))


def _trainable(found: Inspection) -> Section:
    can, number = found.trainable, found.size
    rows = [
        ("steps with prompt and answer", _of(can.n_steps, number.n_steps)),
        *((f"  not: {reason}", _of(n, number.n_steps)) for reason, n in can.not_trainable.items()),
        ("episodes whose prompts only grow", _of(can.n_episodes_growing, number.n_episodes)),
        ("steps with known tools", _of(can.n_steps_with_tools, number.n_steps)),
        ("steps that call a tool", _of(can.n_steps_with_calls, number.n_steps)),
        ("steps with token ids and log-probabilities", _of(can.n_steps_token_true, number.n_steps)),
    ]
    return Section("What is trainable", ("", ""), rows)


def _of(n: int, n_of: int) -> str:
    if not n_of:
        return count(n)
    return f"{count(n)} of {count(n_of)}" + ("" if n in (0, n_of) else f"  {n / n_of:.1%}")


def _scored(found: Inspection) -> Section:
    rows = [
        (
            one.name,
            one.level,
            count(one.n),
            *("-" if value is None else f"{value:.4g}" for value in (one.least, one.mean, one.most)),
        )
        for one in found.metrics
    ]
    if not rows:
        lines = ["nothing: no episode and no step has a metric"]
        return Section("What is scored", ("metric", "of", "n", "min", "mean", "max"), rows, lines)
    return Section("What is scored", ("metric", "of", "n", "min", "mean", "max"), rows)


def _failed(found: Inspection) -> Section:
    failed, number = found.failed, found.size
    rows = [(f"outcome {name}", _of(n, number.n_episodes)) for name, n in failed.outcomes.items()]
    if failed.n_steps_errored:
        rows.append(("steps with an error", _of(failed.n_steps_errored, number.n_steps)))
    rows += [(f"left out: {reason}", count(n)) for reason, n in failed.left.items()]
    rows += [(f"not known: {what}", count(n)) for what, n in failed.missing.items()]
    rows += [(f"files not read, with the suffix {suffix}", count(n)) for suffix, n in failed.unread.items()]
    lines = [f"{one.place}: {one.kind}" for one in failed.places]
    more = sum(n for reason, n in failed.left.items() if reason.startswith("cannot be read")) - len(lines)
    return Section(
        "What failed", ("", ""), rows, [*lines, *([f"… and {count(more)} more"] if more > 0 else [])]
    )


def _repeated(found: Inspection) -> Section:
    same = found.repeated
    rows = [
        ("steps with the prompt and answer of another", _of(same.n_same_answers, same.n_answers)),
        ("episodes with the first prompt of another", _of(same.n_same_first_prompts, same.n_first_prompts)),
    ]
    lines = ["in a part fewer repeat than in the whole"] if found.sample is not None else []
    return Section("What repeats", ("", ""), rows, lines)


def _secret(found: Inspection) -> Section:
    rows = [
        (
            one.kind,
            "personal" if one.kind in PERSONAL else "secret",
            count(one.n_found),
            ", ".join(one.places),
        )
        for one in found.secrets
    ]
    lines = [] if rows else ["none was found"]
    return Section("Secrets and personal data", ("kind", "", "n", "where"), rows, lines)


def lines(found: Inspection, n_columns: int | None = None) -> Iterator[tuple[str | Styled, ...]]:
    """Yield the lines that `trajkit inspect` prints, each as pieces.

    Args:
        found: What was found.
        n_columns: Width of the terminal, at which texts are cut; None if it is no terminal.
    """
    width = n_columns or _WIDTH
    yield (styled(found.place, bold=True),)
    for line in about(found):
        yield (line,)
    for section in sections(found):
        yield ()
        yield (styled(section.title, bold=True),)
        yield from _table(section, width)
        for line in section.lines:
            yield (f"  {_cut(line, width - 2)}",)
    yield ()
    yield (styled(title_of_examples(found), bold=True),)
    for example in found.examples:
        yield styled(f"  {example.which}", bold=True), f"  {_cut(example.episode_id, width - 12)}"
        for name, text in example_rows(example):
            yield styled(f"    {name:<13}", dim=True), _cut(text, width - 17)
    yield ()
    yield (styled("Next", bold=True),)
    for command in found.commands:
        yield (f"  {command}",)


def title_of_examples(found: Inspection) -> str:
    """Return the heading of the examples."""
    return f"Some episodes, by {'length' if found.score is None else found.score}"


def _table(section: Section, width: int) -> Iterator[tuple[str]]:
    if not section.rows:
        return
    last = len(section.headings) - 1
    is_plain = not any(section.headings)
    columns = [max(map(width_of, column)) for column in zip(section.headings, *section.rows, strict=True)]
    room = max(20, width - 2 - sum(columns[:last]) - 2 * last)
    rows = [(*row[:last], _cut(row[last], room)) for row in section.rows]
    cells = [Cell(heading, is_number=heading in _NUMBERS) for heading in section.headings]
    text = table_text(cells, rows).split("\n")
    for line in text[2:] if is_plain else text:
        yield (f"  {line}",)


_NUMBERS = ("n", "min", "mean", "max")


def _cut(text: str, width: int) -> str:
    return text if width_of(text) <= width else f"{text[: max(1, width - 1)]}…"
