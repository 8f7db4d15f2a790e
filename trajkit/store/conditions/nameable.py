"""The names that a condition may use, and the columns that they stand for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from trajkit.errors import QueryError


class Names:
    """The names that a condition may use.

    Args:
        plain: Names without a prefix, to the column of each.
        patterns: Patterns of further names, each the column of that name.
        prefixes: Prefixes, such as `tags`, to the names that may follow.
        open_prefixes: Prefixes that any name may follow: `tags.x` is then the column `tags.x`.
        singles: Columns in single precision: a number that is compared with one is rounded to that.
        where: Where the columns are, for messages, such as the store's path.
    """

    def __init__(
        self,
        plain: Mapping[str, str],
        *,
        patterns: Sequence[re.Pattern[str]] = (),
        prefixes: Mapping[str, Mapping[str, str]] | None = None,
        open_prefixes: Iterable[str] = (),
        singles: Iterable[str] = (),
        where: str,
    ) -> None:
        self._plain = _by_case(plain)
        self._patterns = patterns
        self._prefixes = {prefix: _by_case(columns) for prefix, columns in (prefixes or {}).items()}
        self._open = [prefix.lower() for prefix in open_prefixes]
        self._singles = frozenset(singles)
        self.where = where
        self._known = [
            *plain,
            *(f"{prefix}.{name}" for prefix, each in (prefixes or {}).items() for name in each),
        ]

    def column(self, parts: list[str]) -> str | None:
        """Return the column of a name, preferring its own case; None when there is none."""
        if len(parts) == 1:
            name = parts[0].lower()
            is_like = any(pattern.fullmatch(name) for pattern in self._patterns)
            return self._plain.get(parts[0]) or self._plain.get(name, name if is_like else None)
        columns, rest = self._prefixes.get(parts[0].lower(), {}), ".".join(parts[1:])
        if (found := columns.get(rest) or columns.get(rest.lower())) is not None:
            return found
        text = ".".join(parts)
        for prefix in self._open:
            if text.lower().startswith(f"{prefix}.") and len(text) > len(prefix) + 1:
                return prefix + text[len(prefix) :]
        return None

    def is_single(self, column: str) -> bool:
        """Whether a column is in single precision."""
        return column in self._singles

    def missing(self, name: str, place: str) -> QueryError:
        """Return the error of an unknown name, with the nearest names."""
        return QueryError(f"no column {name!r} in {self.where} ({place})", hint=nearest(name, self._known))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the names that look alike, else with all of them."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    if near:
        return f"nearest: {', '.join(by_lower[each] for each in near)}"
    return f"there are: {', '.join(by_lower.values())}" if by_lower else "there is none"


def column_name(name: str) -> str:
    """Return the name of a column inside an expression: no two of these differ only by case.

    DuckDB ignores the case of names, and tags may differ only by case.
    """
    folded = name.lower()
    return name if name == folded else f"{folded} {name.encode().hex()}"


def _by_case(columns: Mapping[str, str]) -> dict[str, str]:
    """Return columns by name, and by lower-case name if no other column has that name."""
    return {name.lower(): column for name, column in columns.items()} | dict(columns)
