"""Base of what commands return: it prints itself, shows itself in a notebook, and is JSON."""

from __future__ import annotations

from html import escape
from typing import Any


class Result:
    """Base of what commands return. The command line prints `str(result)`, or `to_json()` with `--json`.

    A result that looks different on a terminal has a method `print_text`, which prints it; one that is
    printed row by row has `print_json` too. A property `failure` is the error with which the command line
    ends after it printed the result.
    """

    @property
    def exit_code(self) -> int:
        """Exit code of the command that returned it."""
        return 0

    def to_json(self) -> Any:
        """The result as values that JSON has."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Running(Result):
    """A result that goes on, such as a server. The command line prints it, as one line of JSON, and waits."""

    def wait(self) -> None:
        """Go on until the process is told to end."""
        raise NotImplementedError
