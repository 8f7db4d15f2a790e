"""Complete prompts that continue an earlier response of the responses API, whose start the service stores."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from trajkit.rollouts.recorder.calls.chat import Said
from trajkit.schema import Message

_MOST = 1000


class _Link(NamedTuple):
    before: _Link | None
    messages: tuple[Message, ...]
    """Messages that this call added, its answer last; instructions are not carried over."""


class Chains:
    """The latest recorded responses by id, each with the one before it."""

    def __init__(self) -> None:
        self._links: OrderedDict[str, _Link] = OrderedDict()

    def prompt(self, said: Said) -> tuple[Message, ...] | None:
        """Return the whole prompt of a call; None when only the service knows a part of it."""
        before = None if said.previous_id is None else self._links.get(said.previous_id)
        if not said.is_prompt_known or (said.previous_id is not None and before is None):
            return None
        n = said.n_instructions
        if said.response_id is not None:
            self._links[said.response_id] = _Link(before, (*said.prompt[n:], *_one(said.completion)))
            while len(self._links) > _MOST:
                self._links.popitem(last=False)
        return said.prompt[:n] + _messages(before) + said.prompt[n:]


def _one(message: Message | None) -> tuple[Message, ...]:
    return () if message is None else (message,)


def _messages(link: _Link | None) -> tuple[Message, ...]:
    links = []
    while link is not None:
        links.append(link.messages)
        link = link.before
    return tuple(message for messages in reversed(links) for message in messages)
