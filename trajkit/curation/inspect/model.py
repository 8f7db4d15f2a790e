"""The result of `trajkit inspect`, and how it is shown: on a terminal and as one HTML file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.output import console
from trajkit._core.output.console import Cell, Styled, count, plural, size, styled, table_text, width_of
from trajkit._core.output.result import Result
from trajkit.curation.redaction.shape import PERSONAL
from trajkit.curation.statistics.html_page import document, html_table
from trajkit.schema import Model
from trajkit.store.summary import MetricSummary


class Share(Model):
    """The part of a large place that was read."""

    n_bytes: int | None
    """Size of the part; None if unknown."""
    n_bytes_of: int | None
    """Size of the whole; None if unknown."""
    how: str
    """Description of the part, such as `evenly spread lines`."""

    @property
    def share(self) -> float | None:
        """The part by its size, from 0 to 1; None if unknown."""
        if not self.n_bytes or not self.n_bytes_of:
            return None
        return min(1.0, self.n_bytes / self.n_bytes_of)


class Size(Model):
    """Sizes and counts."""

    n_documents: int | None
    """Documents that were seen; None for a store."""
    n_episodes: int
    n_steps: int
    n_input_tokens: int | None
    """Tokens of the prompts, each prompt whole, as they were logged; None if none were."""
    n_output_tokens: int | None
    """Tokens of the answers, as they were logged; None if none were."""
    n_steps_uncounted: int
    """Steps whose tokens were not logged."""
    n_text_bytes: int
    """Bytes of the texts, each message once: contents, arguments and results."""
    n_tokens_estimated: int
    """An estimate from `n_text_bytes`: 4 bytes a token."""


class Trainable(Model):
    """Counts of what can be learned."""

    n_steps: int
    """Steps with a known prompt and an answer, that are not for evaluation or masked."""
    not_trainable: dict[str, int]
    """The other steps, by reason."""
    n_episodes_growing: int
    """Episodes whose prompts only grow: the whole conversation is one row."""
    n_steps_with_tools: int
    """Steps whose offered tools are known."""
    n_steps_with_calls: int
    """Steps whose answer calls a tool."""
    n_steps_token_true: int
    """Steps with sampled token ids and log-probabilities."""


class Wrong(Model):
    """A problem and its place."""

    place: str
    """Such as `a.jsonl:12`."""
    kind: str
    """The problem, without the value, which may be secret."""


class Failed(Model):
    """Failures."""

    outcomes: dict[str, int]
    """Episodes by outcome."""
    n_steps_errored: int
    """Steps with an error, such as a failed call."""
    left: dict[str, int]
    """Documents that cannot be read or were set aside, by reason."""
    places: tuple[Wrong, ...]
    """The first damaged documents."""
    unread: dict[str, int]
    """Files that no format reads, by suffix."""
    missing: dict[str, int]
    """Episodes without a known value, by the kind of value."""


class Repeated(Model):
    """Exact duplicates."""

    n_answers: int
    """Steps with a known prompt and an answer."""
    n_same_answers: int
    """Steps that repeat another: the same prompt and the same answer."""
    n_first_prompts: int
    """Episodes whose first prompt is known."""
    n_same_first_prompts: int
    """Episodes whose first prompt an earlier one also has."""


class Secret(Model):
    """Secrets and personal data of one kind."""

    kind: str
    """Such as `github-token`."""
    n_found: int
    """Occurrences."""
    places: tuple[str, ...]
    """Places, such as `steps.messages`."""


class Leaked(Model):
    """Items that are shared with an evaluation set."""

    against: str
    """The evaluation set."""
    n_episodes: int
    """Its episodes."""
    found: dict[str, int]
    """Shared items by kind, such as `identical prompts`."""
    n_blocking: int
    """Shared items that forbid training."""


class Example(Model):
    """An episode, without secrets and shortened."""

    which: str
    """`best`, `typical`, `worst`, or by length `longest`, `shortest`."""
    episode_id: str
    score: float | None
    n_steps: int
    outcome: str
    task: str | None
    first_prompt: str
    """The latest message of the first prompt."""
    last_answer: str
    """The last answer: its text, else its calls."""


class Inspection(Model, Result):
    """First facts about some logs."""

    place: str
    """The place that was read."""
    format: str
    """The recognised format or source; `store` for a store."""
    n_bytes: int | None
    """Size of all of it; None if unknown."""
    sample: Share | None
    """The part that was read; None for all of it."""
    size: Size
    trainable: Trainable
    score: str | None
    """The metric by which the examples are chosen; None for their length."""
    metrics: tuple[MetricSummary, ...]
    """Every metric, with count, mean and range."""
    failed: Failed
    repeated: Repeated
    secrets: tuple[Secret, ...]
    """By kind, the most frequent first; never a value."""
    leaked: Leaked | None
    """None if no evaluation set was given."""
    examples: tuple[Example, ...]
    commands: tuple[str, ...]
    """Commands to type next."""

    @property
    def times(self) -> float | None:
        """Factor from counts of the part to the whole; 1 if all was read; None if unknown."""
        if self.sample is None:
            return 1.0
        share = self.sample.share
        return None if share is None else 1 / share

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and estimates of the whole from the counts of a part."""
        times = self.times
        value = self.model_dump(mode="json")
        value["extrapolated"] = self.sample is not None
        if self.sample is not None and times is not None:
            value["estimates_of_the_whole"] = {
                "n_episodes": round(self.size.n_episodes * times),
                "n_steps": round(self.size.n_steps * times),
                "n_tokens": round(self.size.n_tokens_estimated * times),
            }
        return value

    def __str__(self) -> str:
        return "\n".join(console.line(*pieces) for pieces in lines(self))

    def __repr__(self) -> str:
        return f"<inspect of {Path(self.place).name}: {self.size.n_episodes:,} episodes, {self.format}>"

    def print_text(self) -> None:
        """Print the page on stdout; on a terminal in colour, and no wider than it."""
        n_columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for pieces in lines(self, n_columns):
            console.result(*pieces)


_NUMBERS = ("n", "min", "mean", "max")
_WRAPPED = "white-space:normal;overflow-wrap:anywhere;text-align:left"
_WIDTH = 110
"""Columns of a text without a terminal."""


class Section(NamedTuple):
    """A heading with a table, and lines below it."""

    title: str
    headings: tuple[str, ...]
    """Empty texts for a table without a header."""
    rows: Sequence[tuple[str, ...]]
    lines: Sequence[str] = ()


def about(found: Inspection) -> Iterator[str]:
    """Yield lines with the kind of the logs, and the part that was read."""
    what = "a store" if found.format == "store" else f"read as {found.format}"
    yield what if found.n_bytes is None else f"{what}, {size(found.n_bytes)}"
    if found.sample is not None:
        share = found.sample.share
        part = found.sample.how if share is None else f"{share:.2%} of the bytes ({found.sample.how})"
        yield f"only a part was read: {part}"
        if found.times is None:
            yield "every count is for this part; the size of the whole is unknown"
        else:
            yield "counts are for this part; ~ is an estimate of the whole"


def sections(found: Inspection) -> Iterator[Section]:
    """Yield the sections in the order of the page."""
    yield Section("Size", ("", ""), list(_size(found)))
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
    """Return the facts about an example, as names and texts."""
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
    """Write a count, and for a part the estimate of the whole."""
    times = found.times
    if found.sample is None or times is None:
        return count(number)
    return f"{count(number)} (~ {count(_round(number * times))})"


def _round(number: float) -> int:
    """Round an estimate to three digits: more would look exact."""
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
    return Section("Trainable", ("", ""), rows)


def _of(n: int, n_of: int) -> str:
    if not n_of:
        return count(n)
    return f"{count(n)} of {count(n_of)}" + ("" if n in (0, n_of) else f"  {n / n_of:.1%}")


def _scored(found: Inspection) -> Section:
    rows = [metric.cells for metric in found.metrics]
    lines = [] if rows else ["nothing: no episode and no step has a metric"]
    return Section("Scores", ("metric", "of", "n", "min", "mean", "max"), rows, lines)


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
    if more > 0:
        lines.append(f"… and {count(more)} more")
    return Section("Failures", ("", ""), rows, lines)


def _repeated(found: Inspection) -> Section:
    same = found.repeated
    rows = [
        ("steps with the prompt and answer of another", _of(same.n_same_answers, same.n_answers)),
        ("episodes with the first prompt of another", _of(same.n_same_first_prompts, same.n_first_prompts)),
    ]
    lines = ["a part has fewer repeats than the whole"] if found.sample is not None else []
    return Section("Duplicates", ("", ""), rows, lines)


def _secret(found: Inspection) -> Section:
    rows = []
    for one in found.secrets:
        kind = "personal" if one.kind in PERSONAL else "secret"
        rows.append((one.kind, kind, count(one.n_found), ", ".join(one.places)))
    lines = [] if rows else ["none was found"]
    return Section("Secrets and personal data", ("kind", "", "n", "where"), rows, lines)


def lines(found: Inspection, n_columns: int | None = None) -> Iterator[tuple[str | Styled, ...]]:
    """Yield the lines that `trajkit inspect` prints, each as pieces.

    Args:
        found: What was found.
        n_columns: Width of the terminal, at which texts are cut; None if it is not a terminal.
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


def _cut(text: str, width: int) -> str:
    return text if width_of(text) <= width else f"{text[: max(1, width - 1)]}…"


def page(found: Inspection) -> str:
    """Return the page as HTML text."""
    return document(f"{found.place}: a first look", "".join(_parts(found)))


def _parts(found: Inspection) -> Iterator[str]:
    yield f"<h1>{escape(found.place)}</h1>"
    yield "".join(f"<p>{escape(line)}</p>" for line in about(found))
    for section in sections(found):
        yield f"<h2>{escape(section.title)}</h2>"
        if section.rows:
            rows = [tuple(cell.strip() for cell in row) for row in section.rows]
            yield f'<div class="wraps">{html_table(section.headings, rows)}</div>'
        yield "".join(f"<p>{escape(line)}</p>" for line in section.lines)
    yield f"<h2>{escape(title_of_examples(found))}</h2>"
    for example in found.examples:
        yield f"<h3>{escape(example.which)}: {escape(example.episode_id)}</h3>"
        for name, text in example_rows(example):
            yield f"<p><b>{escape(name)}</b> {escape(text)}</p>"
    yield "<h2>Next</h2>"
    yield "".join(f'<p><code style="{_WRAPPED}">{escape(one)}</code></p>' for one in found.commands)
