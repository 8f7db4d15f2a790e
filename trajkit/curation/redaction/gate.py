"""Check the texts of a store with another scanner: betterleaks or gitleaks, if one is on the PATH."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.redaction.column import leaves, text_columns
from trajkit.errors import RequestError
from trajkit.store.layout import TABLES, quoted

PROGRAMS = ("betterleaks", "gitleaks")
"""In order of preference: the first is by the author of the second, and reads the same configuration."""
_FOUND = 3


class Opinion(NamedTuple):
    """Result of another scanner."""

    program: str
    """Its name."""
    n_by_rule: dict[str, int]
    """Number of findings of each of its rules; empty if it found nothing."""


def program_on_path() -> str | None:
    """Return the name of the installed scanner; None without one."""
    return next((name for name in PROGRAMS if shutil.which(name)), None)


def second_opinion(path: str | Path) -> Opinion | None:
    """Run the installed scanner on every text of a store; None without a scanner.

    Args:
        path: The store, or `sample:NAME`.

    Raises:
        RequestError: The scanner failed.
        StoreError: The store cannot be read.
    """
    if program_on_path() is None:
        return None
    with deriving(path) as derivation:
        return opinion_of(_texts(derivation))


def opinion_of(texts: Iterable[str]) -> Opinion | None:
    """Run the installed scanner on texts; None without a scanner.

    The texts go into its standard input, and none is kept.

    Raises:
        RequestError: The scanner failed.
    """
    program = program_on_path()
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(program, "stdin", "--no-banner", "--redact=100", "--exit-code", str(_FOUND)),
            *("--report-format", "json", "--report-path", str(report)),
        ]
        log = Path(folder) / "log"
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            ) as process,
        ):
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # its exit code shows the cause
                process.stdin.writelines(text.encode("utf-8", "replace") + b"\n" for text in texts)
                process.stdin.close()
        if process.returncode not in (0, _FOUND):
            words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise RequestError(
                f"{program} failed with {process.returncode}: {words[-1] if words else 'no output'}",
                hint="--no-gate skips it",
            )
        found = json.loads(report.read_text(encoding="utf-8") or "[]") if report.is_file() else []
        return Opinion(program, dict(Counter(str(each.get("RuleID", "?")) for each in found or ())))


def _texts(derivation: Derivation) -> Iterator[str]:
    """Yield the distinct texts of a store; of JSON, its strings."""
    for table in TABLES:
        for column in text_columns(table):
            name = quoted(column.name)
            if column.sql_type == "VARCHAR[]":
                name = f"unnest({name})"
            rows = derivation.connection.execute(f"SELECT DISTINCT CAST({name} AS VARCHAR) FROM {table}")
            while batch := rows.fetchmany(1000):
                for (text,) in batch:
                    if text is not None:
                        yield from leaves(text, is_json=column.sql_type == "JSON")
