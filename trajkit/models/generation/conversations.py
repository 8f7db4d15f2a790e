"""Remember the token ids of conversations, so that a later turn extends them exactly."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import NamedTuple

from trajkit.formats.tokens.tokenizer import ChatTemplate

_MOST = 1024
"""Number of conversations to keep; the least recently used goes first."""
_TURNS = 4
"""Number of turns to keep of each, so that a turn can be sampled again."""


class _Turn(NamedTuple):
    text: str
    ids: tuple[int, ...]


class Conversations:
    """The token ids of the latest conversations.

    Byte-pair encodings are not bijective: tokenising a sampled text again often gives other tokens. Where the
    text of a prompt begins with that of an earlier turn, the prompt gets the ids of that turn, and only the
    rest is tokenised.

    Args:
        template: The tokenizer.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._turns: OrderedDict[str, deque[_Turn]] = OrderedDict()
        self._lock = threading.Lock()

    def extended(self, name: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """Replace the beginning of a prompt by the ids of the turns before it.

        Args:
            name: Id of the conversation.
            prompt: The whole prompt, tokenised at once. It is returned unchanged where it continues no kept
                turn, for example where the template removes earlier thoughts.
        """
        with self._lock:
            turns = list(self._turns.get(name, ()))
        if not turns:
            return prompt
        text = self._template.spelled(prompt)
        for turn in sorted(turns, key=lambda turn: len(turn.text), reverse=True):
            if text.startswith(turn.text):
                ids = (*turn.ids, *self._template.encode(text[len(turn.text) :]))
                if self._template.spelled(ids) == text:
                    return ids
        return prompt

    def keep(self, name: str, prompt: tuple[int, ...], said: tuple[int, ...]) -> None:
        """Remember a turn.

        Args:
            name: Id of the conversation.
            prompt: Ids of the prompt.
            said: Ids that were sampled after it. The template may end a turn with another token than the
                sampled one, so the turn is also kept without its last token.
        """
        spellings = [said, said[:-1]] if said and said[-1] in self._template.stops else [said]
        made = [_Turn(self._template.spelled(prompt + each), prompt + each) for each in spellings]
        with self._lock:
            self._turns.setdefault(name, deque(maxlen=2 * _TURNS)).extend(made)
            self._turns.move_to_end(name)
            while len(self._turns) > _MOST:
                self._turns.popitem(last=False)

    def clear(self) -> None:
        """Forget all conversations."""
        with self._lock:
            self._turns.clear()
