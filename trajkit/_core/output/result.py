"""Base of what commands return: it prints itself, shows itself in a notebook, and is JSON."""

from __future__ import annotations

import abc
from html import escape
from typing import Any

from trajkit._core.output import console
from trajkit._core.process.closing import Closing
from trajkit.errors import TrajkitError


class Result:
    """Base of what commands return. The command line prints it as text, or as JSON with `--json`."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command that returned it."""
        return 0

    @property
    def failure(self) -> TrajkitError | None:
        """The error with which the command line ends after it printed the result; None for success."""
        return None

    def to_json(self) -> Any:
        """Return the result as JSON values; for a model or a dataclass, all its fields."""
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(self)

    def print_text(self) -> None:
        """Print the text on stdout; a result that looks different on a terminal does so here."""
        if text := str(self):
            console.result_text(text)

    def print_json(self) -> None:
        """Print the JSON on stdout."""
        console.result_json(self.to_json())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Running(Result, Closing):
    """A running result, such as a server. The command line prints it, as one line of JSON, and waits."""

    def print_json(self) -> None:
        """Print the JSON on stdout, as one line."""
        console.result_json_line(self.to_json())

    @abc.abstractmethod
    def wait(self) -> None:
        """Run until the process is told to end."""
