"""Show the local services of the working folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trajkit._core.output.console import Cell, count, result_text, table_text, talk
from trajkit._core.output.result import Result
from trajkit.errors import ServiceError

if TYPE_CHECKING:
    from trajkit.stack.state import LocalStack


@dataclass(frozen=True)
class Status(Result):
    """The local services of the folder."""

    stack: LocalStack | None = None
    """What was started here; None for nothing."""
    is_up: bool = False
    """Whether the database is running."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of its main tables; empty if it is not running."""

    @property
    def exit_code(self) -> int:
        """1 when the database is not running."""
        return 0 if self.is_up else 1

    def to_json(self) -> dict[str, Any]:
        """Whether the database is running, the services, and the rows."""
        return {
            "is_up": self.is_up,
            **({} if self.stack is None else self.stack.to_json()),
            "rows": dict(self.rows),
        }

    def __str__(self) -> str:
        if self.stack is None:
            return "nothing is running in this folder"
        if not self.rows:
            return str(self.stack)
        columns = (Cell("table"), Cell("rows", is_number=True))
        return f"{self.stack}\n\n{table_text(columns, [(name, count(n)) for name, n in self.rows.items()])}"

    def print_text(self) -> None:
        """Print the services on stdout, and on stderr how to start the stopped ones."""
        if self.stack is None:
            talk(f"{self}; start with `trajkit up`")
            return
        result_text(str(self))
        if not self.stack.is_running:
            talk("`trajkit up` starts what is not running, on the same data")


def status() -> Status:
    """Show the local services: where they are, since when, and the rows in the main tables.

    Exit code 1 when the database is not running.

    Raises:
        StackError: The state file cannot be read.
        ServiceError: The database does not answer.
    """
    from trajkit.stack.local import row_counts
    from trajkit.stack.state import read_state

    stack = read_state()
    if stack is None or not stack.clickhouse.is_running:
        return Status(stack)
    try:
        return Status(stack, is_up=True, rows=row_counts(stack))
    except ServiceError:
        again = read_state()
        if again is not None and again.clickhouse.is_running:
            raise
        return Status(again)  # it ended during the query
