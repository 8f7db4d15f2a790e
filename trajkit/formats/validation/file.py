"""Validate a training file: check all rules on all rows, name place, value and remedy, or repair the rows."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trajkit._core.address import place_of
from trajkit._core.division import Division
from trajkit._core.files import refuse_existing, replacing
from trajkit._core.output.console import count, line, plural, size
from trajkit._core.output.result import Result
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokens.tokenizer import load_tokenizer
from trajkit.formats.validation.chat_rules import n_images
from trajkit.formats.validation.finding import Finding, Flaw, Severity, shown
from trajkit.formats.validation.lines import BOM, Line, has_bom, read_lines
from trajkit.formats.validation.loss import LossCount, LossReport, LossSums
from trajkit.formats.validation.shape import flaws_of, repaired, shape_of
from trajkit.formats.validation.target import Bom, Shape, Target, target_named
from trajkit.schema import Model

MOST_SHOWN = 5
"""Maximum kept findings per kind; the others are counted."""
_MAX_SUFFIX = 64


class Validation(Result, Model):
    """Result of a validation."""

    path: Path
    """The file."""
    target: str
    """The target that it is for."""
    shape: str | None
    """The kind of its rows; None if no row has a known kind."""
    n_rows: int
    """Lines that are not blank."""
    n_bytes: int
    """Its size."""
    n_errors: int
    """Findings for which the target refuses the file."""
    n_warnings: int
    """Findings for which the target accepts the file but learns something else."""
    counts: dict[str, int]
    """Findings by kind."""
    findings: tuple[Finding, ...]
    """The first few of each kind, in the order of the file."""
    repairs: dict[str, int]
    """Changes in the copy, by kind; empty without a copy."""
    repaired_path: Path | None
    """The copy; None without one."""
    loss: LossReport | None
    """Counts of learned tokens; None without a tokenizer."""

    @property
    def exit_code(self) -> int:
        """1 if the target would refuse the file."""
        return 1 if self.n_errors else 0

    def __str__(self) -> str:
        lines = []
        for finding in self.findings:
            lines += [f"{finding.severity}: {finding}", f"    {finding.hint}"]
        for kind, number in self.counts.items():
            if (n_more := number - sum(finding.kind == kind for finding in self.findings)) > 0:
                lines.append(f"and {count(n_more)} more: {kind}")
        rows = f"{plural(self.n_rows, 'row')}  {size(self.n_bytes)}"
        numbers = f"{plural(self.n_errors, 'error')}, {plural(self.n_warnings, 'warning')}"
        verdict = "would be refused" if self.n_errors else "would be accepted"
        last = line(f"{self.path}  {rows}  {numbers}: {verdict} by {self.target}")
        return "\n".join((*map(line, lines), *([] if self.loss is None else [str(self.loss)]), last))


def validate(
    path: Path,
    *,
    target: str,
    suffix: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    repair_to: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda n_done, n_total: None,
    division: Division | None = None,
) -> Validation:
    """Check a file by the rules of its target. It is streamed: memory grows only with the longest line.

    Args:
        path: JSONL, or Parquet.
        target: One of `TARGETS`.
        suffix: The suffix for the tuned model's name, which is checked, too.
        tokenizer: Tokenizer for the loss report, see `load_tokenizer`; None for no report.
        max_length: The trainer's limit of tokens in a row; None without one.
        repair_to: Write a copy with safe repairs; None for no copy. The findings are then those of the copy.
        on_progress: Gets how many bytes are read, and how many there are.
        division: Read the lines in several processes, without a copy; None reads them in this one.

    Raises:
        RequestError: The target or the tokenizer does not exist, or a Parquet file is to be repaired.
        MissingExtra: The tokenizer's package is not installed.
        DataError: The file cannot be read, or is in another encoding.
        StoreError: The copy exists.
    """
    rules = target_named(target)
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    if repair_to is not None and path.suffix == ".parquet":
        raise RequestError("only JSONL files are repaired", hint="convert the store again")
    loss = None if tokenizer is None else LossCount(load_tokenizer(tokenizer), max_length)
    check = _Check(path, rules, loss)
    check.look_at_file(suffix, is_repaired=repair_to is not None)
    if division is not None:
        tasks = [Task(str(path), target, tokenizer, max_length, i, division.n) for i in range(division.n)]
        for found in division.map(check_shard, tasks):
            check.take(found)
        check.look_back()
        return check.result(None)
    with _copy(repair_to, rules) as copy:
        for line in read_lines(path):
            check.look_at(line, copy)
            on_progress(check.n_read, check.n_bytes)
    check.look_back()
    return check.result(repair_to)


class Task(NamedTuple):
    """One shard of a validation: every n-th line."""

    path: str
    target: str
    tokenizer: str | None
    max_length: int | None
    number: int
    n: int


@dataclass
class Checked:
    """Findings in some lines of a file; its memory is bounded, whatever the file's size."""

    shape: Shape | None = None
    counts: Counter[str] = field(default_factory=Counter)
    severities: Counter[Severity] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    n_rows: int = 0
    n_image_rows: int = 0
    n_weighted: int = 0
    loss: LossSums | None = None


def check_shard(task: Task) -> Checked:
    """Check the lines of one shard; of the others only those that determine the kind of the rows."""
    loss = None if task.tokenizer is None else LossCount(load_tokenizer(task.tokenizer), task.max_length)
    path = place_of(task.path)
    check = _Check(path, target_named(task.target), loss)

    def is_mine(number: int) -> bool:
        return number % task.n == task.number

    for each in read_lines(path, lambda number: is_mine(number) or check.found.shape is None):
        if is_mine(each.number):
            check.look_at(each, None)
        else:
            check.learn_shape(each)
    return check.found


@contextlib.contextmanager
def _copy(goal: Path | None, target: Target) -> Iterator[BinaryIO | None]:
    if goal is None:
        yield None
        return
    refuse_existing(goal)
    with replacing(goal) as temporary, temporary.open("wb") as file:
        if target.bom == Bom.WANTED:
            file.write(BOM)
        yield file


def _as_it_is(line: Line, path: Path) -> bytes:
    if line.raw is None:
        raise DataError(
            f"{path} line {line.number}: {line.flaws[0].kind}", hint="remove it, then repair the file"
        )
    return line.raw


def _written(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair can only be written as an escape
        return json.dumps(row).encode("ascii") + b"\n"


class _Check:
    """Checks one line after another."""

    def __init__(self, path: Path, target: Target, loss: LossCount | None) -> None:
        self._path, self._target, self._loss = path, target, loss
        self.found = Checked(loss=None if loss is None else loss.sums)
        """Findings and counts so far."""
        self._repairs: Counter[str] = Counter()
        self.n_read = 0
        self.n_bytes = path.stat().st_size

    def look_at_file(self, suffix: str | None, *, is_repaired: bool) -> None:
        """Check the file as a whole, before its lines."""
        target = self._target
        is_text = self._path.suffix != ".parquet"
        if is_text and has_bom(self._path) != (target.bom == Bom.WANTED):
            is_wanted = target.bom == Bom.WANTED
            if is_repaired:
                self._repairs["byte order mark added" if is_wanted else "byte order mark removed"] += 1
            elif is_wanted:
                self._add(
                    None,
                    Flaw("no byte order mark", "", f"{target.name} requires UTF-8 with one: --fix adds it"),
                )
            else:
                hint = f"{target.name} cannot read line 1 as JSON because of it: --fix removes it"
                self._add(None, Flaw("a byte order mark", "", hint))
        if target.max_bytes is not None and self.n_bytes > target.max_bytes:
            hint = f"{target.name} takes at most {target.max_bytes / 1e6:,.0f} MB: split it"
            self._add(None, Flaw("the file is too large", "", hint, f"{self.n_bytes / 1e6:,.0f} MB"))
        if suffix is not None:
            self._look_at_suffix(suffix)

    def _look_at_suffix(self, suffix: str) -> None:
        if not 1 <= len(suffix) <= _MAX_SUFFIX:
            self._add(
                None,
                Flaw("the suffix is too long or empty", "", f"1 to {_MAX_SUFFIX} characters", shown(suffix)),
            )
        if not self._target.suffix_has_dots and "." in suffix:
            self._add(
                None, Flaw("the suffix has a dot", "", f"{self._target.name} takes none", shown(suffix))
            )

    def take(self, other: Checked) -> None:
        """Add the findings and counts of other lines."""
        mine = self.found
        mine.shape = mine.shape or other.shape
        mine.counts.update(other.counts)
        mine.severities.update(other.severities)
        found = sorted((*mine.findings, *other.findings), key=lambda each: each.line or 0)
        shown: Counter[str] = Counter()
        mine.findings = []
        for finding in found:
            shown[finding.kind] += 1
            if shown[finding.kind] <= MOST_SHOWN:
                mine.findings.append(finding)
        mine.n_rows += other.n_rows
        mine.n_image_rows += other.n_image_rows
        mine.n_weighted += other.n_weighted
        if self._loss is not None and other.loss is not None:
            self._loss.take(other.loss)

    def learn_shape(self, line: Line) -> None:
        """Take the kind of the rows from a line that is not checked here."""
        if line.row is not None:
            self.found.shape = self.found.shape or shape_of(line.row, self._target)

    def look_at(self, line: Line, copy: BinaryIO | None) -> None:
        """Check a line, and write it to the copy, repaired."""
        self.n_read += line.n_bytes
        if line.is_blank and copy is not None:
            self._repairs["blank line removed"] += 1
            return
        self.found.n_rows += not line.is_blank
        for flaw in line.flaws:
            self._add(line.number, flaw)
        if line.row is None:
            if copy is not None:
                copy.write(_as_it_is(line, self._path))
            return
        shape = shape_of(line.row, self._target)
        row = line.row if copy is None else repaired(line.row, shape, self._target, self._repairs)
        self._look_at_row(row, shape, line.number)
        self.found.shape = self.found.shape or shape
        self._look_at_images(row, line.number)
        self.found.n_weighted += "weight" in row
        if copy is not None:
            copy.write(_written(row))

    def _look_at_row(self, row: dict[str, Any], shape: Shape | None, number: int) -> None:
        is_good = shape is not None
        for flaw in flaws_of(row, self._target, self.found.shape):
            self._add(number, flaw)
            is_good = is_good and flaw.severity != Severity.ERROR
        # the tokens of a start are known only when it is played
        if self._loss is not None and shape is not None and shape != Shape.START and is_good:
            for flaw in self._loss.add(row, shape):
                self._add(number, flaw)

    def _look_at_images(self, row: dict[str, Any], number: int) -> None:
        found = n_images(row.get("messages"))
        self.found.n_image_rows += found > 0
        most = self._target.max_images
        if most is not None and found > most:
            hint = f"{self._target.name} takes {most} in a row"
            self._add(number, Flaw("too many images", "$.messages", hint, str(found)))

    def look_back(self) -> None:
        """Check what needs counts of all lines."""
        target, n_rows, n_weighted = self._target, self.found.n_rows, self.found.n_weighted
        if n_rows < target.min_rows:
            hint = f"{target.name} needs at least {target.min_rows}"
            self._add(None, Flaw("too few rows", "", hint, f"{n_rows} rows"))
        if target.max_rows is not None and n_rows > target.max_rows:
            hint = f"{target.name} takes {target.max_rows:,}"
            self._add(None, Flaw("too many rows", "", hint, f"{n_rows:,}"))
        if target.max_image_rows is not None and self.found.n_image_rows > target.max_image_rows:
            hint = f"{target.name} takes {target.max_image_rows:,} rows with images"
            self._add(None, Flaw("too many rows with images", "", hint, f"{self.found.n_image_rows:,}"))
        if target.has_row_weights and 0 < n_weighted < n_rows:
            hint = "give every row a weight, or none"
            self._add(None, Flaw("some rows have a weight", "", hint, f"{n_weighted:,} of {n_rows:,}"))

    def _add(self, number: int | None, flaw: Flaw) -> None:
        found = self.found
        found.counts[flaw.kind] += 1
        found.severities[flaw.severity] += 1
        if found.counts[flaw.kind] <= MOST_SHOWN:
            found.findings.append(Finding(line=number, **flaw._asdict()))

    def result(self, repaired_path: Path | None) -> Validation:
        """Return the findings and counts."""
        found = self.found
        return Validation(
            path=self._path,
            target=self._target.name,
            shape=found.shape and found.shape.value,
            n_rows=found.n_rows,
            n_bytes=self.n_bytes,
            n_errors=found.severities[Severity.ERROR],
            n_warnings=found.severities[Severity.WARNING],
            counts=dict(found.counts.most_common()),
            findings=tuple(found.findings),
            repairs=dict(sorted(self._repairs.items())),
            repaired_path=repaired_path,
            loss=self._loss and self._loss.report(),
        )
