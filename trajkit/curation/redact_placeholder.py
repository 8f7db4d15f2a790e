"""What stands in the place of a value: the same for the same, wherever it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

PLACEHOLDER = r"\[[A-Z][A-Z0-9_]*_[0-9]{1,18}\]"
"""What stands in the place of a value, for RE2 and re alike."""
MET = re.compile(PLACEHOLDER, re.ASCII)
"""The same, compiled."""


class Placeholders:
    """What stands in the place of each value: the same for the same, as long as this lives.

    Args:
        taken: The highest number that is there already, by the word of the kind.
    """

    def __init__(self, taken: Mapping[str, int] | None = None) -> None:
        self._taken = dict(taken or {})
        self._numbers = dict(self._taken)
        self._known: dict[tuple[str, str], str] = {}
        self._met: dict[str, int] = {}

    def meet(self, text: str) -> None:
        """Note the placeholders that an earlier pass left in a text."""
        for found in MET.findall(text):
            word, _, number = found[1:-1].rpartition("_")
            self._met[word] = max(self._met.get(word, 0), int(number))

    def clashes(self) -> dict[str, int]:
        """What should have been taken: the highest numbers by word, where one may have been given twice."""
        if not any(
            number > self._taken.get(word, 0) for word, number in self._met.items() if self._is_given(word)
        ):
            return {}
        return {word: max(self._taken.get(word, 0), number) for word, number in self._met.items()}

    def _is_given(self, word: str) -> bool:
        return self._numbers.get(word, 0) > self._taken.get(word, 0)

    def of(self, kind: str, value: str) -> str:
        """The placeholder of a value: `[EMAIL_1]`, numbered in the order in which they are asked for."""
        if (kind, value) not in self._known:
            word = word_of(kind)
            self._numbers[word] = self._numbers.get(word, 0) + 1
            self._known[kind, value] = f"[{word}_{self._numbers[word]}]"
        return self._known[kind, value]


def word_of(kind: str) -> str:
    """A kind as placeholders have it: `github-token` is GITHUB_TOKEN."""
    return re.sub(r"[^A-Z0-9]+", "_", kind.upper()).strip("_")
