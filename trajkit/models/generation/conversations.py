"""Token ids of conversations as they were read and sampled, so that a later turn extends them."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import NamedTuple

from trajkit.formats.tokenizer import ChatTemplate

_MOST = 1024
"""Conversations that are kept; the one that was longest not used goes first."""
_TURNS = 4
"""Turns that are kept of each, so that a turn can be sampled again."""


class _Turn(NamedTuple):
    text: str
    ids: tuple[int, ...]


class Conversations:
    """What the last conversations were in ids.

    Byte-pair encodings are not bijective: a text that a model sampled is often spelled with other tokens when
    it is tokenised again. Where the text of a prompt begins with that of an earlier turn, the prompt begins
    with the ids of that turn, and only the rest is tokenised.

    Args:
        template: The tokenizer.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._turns: OrderedDict[str, deque[_Turn]] = OrderedDict()
        self._lock = threading.Lock()

    def extended(self, name: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """A prompt with the ids of the turns before it.

        Args:
            name: What the conversation is called.
            prompt: The whole prompt as it is tokenised at once. It stays so where it does not go on from a
                turn that is kept, such as where the template leaves out earlier thoughts.
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
        """Keep a turn.

        Args:
            name: What the conversation is called.
            prompt: Ids of the prompt.
            said: Ids that were sampled after it. The template may end a turn with another token than the one
                that ended it here, so the turn is kept without that one, too.
        """
        spellings = [said, said[:-1]] if said and said[-1] in self._template.stops else [said]
        made = [_Turn(self._template.spelled(prompt + each), prompt + each) for each in spellings]
        with self._lock:
            self._turns.setdefault(name, deque(maxlen=2 * _TURNS)).extend(made)
            self._turns.move_to_end(name)
            while len(self._turns) > _MOST:
                self._turns.popitem(last=False)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._turns.clear()
