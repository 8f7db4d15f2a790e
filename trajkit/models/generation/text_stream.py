"""Decode the text of an answer token by token."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.formats.tokens.tokenizer import ChatTemplate

_UNFINISHED = "\ufffd"


class TextStream:
    """Decodes tokens one by one.

    A token can be a part of a character, and its text can depend on the token before, so a few tokens are
    decoded again with each new one.

    Args:
        template: The tokenizer.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._tokens: list[int] = []
        self._before = self._read = 0
        """Start of the tokens that are decoded again, and start of the new tokens."""

    def add(self, token: int) -> str:
        """Return the text that a token adds; empty while a character is incomplete."""
        self._tokens.append(token)
        before = self._template.decode(self._tokens[self._before : self._read])
        after = self._template.decode(self._tokens[self._before :])
        if len(after) <= len(before) or after.endswith(_UNFINISHED):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return after[len(before) :]


def first_of(text: str, ends: Sequence[str]) -> int | None:
    """Return the position of the first of some texts; None when none occurs."""
    places = [place for end in ends if end and (place := text.find(end)) >= 0]
    return min(places, default=None)


def sure_length(text: str, ends: Sequence[str]) -> int:
    """Return the length of the text that cannot be the beginning of one of some end texts."""
    for length in range(max(map(len, ends), default=0) - 1, 0, -1):
        if any(end.startswith(text[-length:]) for end in ends if len(end) > length) and len(text) >= length:
            return len(text) - length
    return len(text)
