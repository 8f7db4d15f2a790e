"""Base of what commands return: it prints itself, shows itself in a notebook, and is JSON."""

from __future__ import annotations

from html import escape
from typing import Any

from trajkit.errors import TrajkitError


class Result:
    """Base of what commands return. The command line prints `str(result)`, or `to_json()` with `--json`.

    A result that looks different on a terminal has a method `print_on_terminal`.
    """

    exit_code = 0
    """Exit code of the command that returned it."""

    def failure(self) -> TrajkitError | None:
        """The error with which the command line ends after it printed the result; None where it is good."""
        return None

    def to_json(self) -> Any:
        """The result as values that JSON has."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
