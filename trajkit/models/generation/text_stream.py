"""The text of an answer while its tokens come one by one."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.formats.tokenizer import ChatTemplate

_UNFINISHED = "\ufffd"


class TextStream:
    """Text of tokens that come one by one.

    A token can be a part of a character, and what it adds can depend on the one before, so a few are read
    again with each new one.

    Args:
        template: Whose tokens they are.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._tokens: list[int] = []
        self._before = self._read = 0
        """Where the tokens begin that are read again, and where those that were not yet read do."""

    def add(self, token: int) -> str:
        """What a token adds; nothing as long as a character is not whole."""
        self._tokens.append(token)
        before = self._template.decode(self._tokens[self._before : self._read])
        after = self._template.decode(self._tokens[self._before :])
        if len(after) <= len(before) or after.endswith(_UNFINISHED):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return after[len(before) :]


def first_of(text: str, ends: Sequence[str]) -> int | None:
    """Where the first of some texts begins; None when none is there."""
    places = [place for end in ends if end and (place := text.find(end)) >= 0]
    return min(places, default=None)


def sure_length(text: str, ends: Sequence[str]) -> int:
    """How much of a text is certain not to be the beginning of one of some texts."""
    for length in range(max(map(len, ends), default=0) - 1, 0, -1):
        if any(end.startswith(text[-length:]) for end in ends if len(end) > length) and len(text) >= length:
            return len(text) - length
    return len(text)
