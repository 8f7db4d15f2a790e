"""Measure the table of `docs/formats.md`: what of an episode comes back from each format.

An episode of which every field has a value is written and read: once as it is, and once without trajkit's
profile, as a stranger would read it. `make docs` writes the table; a test compares it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.formats.exchange import call, result, say, whole
from trajkit.formats import format_named
from trajkit.formats.adp import read_adp
from trajkit.formats.base import Example, json_line
from trajkit.formats.hf_messages import read_hf_messages
from trajkit.formats.openai_chat import read_openai_chat
from trajkit.formats.profile import EPISODE_FIELDS, KEY, STEP_FIELDS, same
from trajkit.formats.reading.atif import read_atif
from trajkit.formats.reading.document import BadDocument, Reading
from trajkit.formats.reading.sharegpt import read_sharegpt
from trajkit.formats.sts import read_sts
from trajkit.schema import Episode, Message, Transition

START, END = "<!-- conformance: made by `make docs` -->", "<!-- conformance: end -->"

OWN, PROFILE, CHANGED, LOST = "own field", "profile", "changed", "lost"

_NOT_FOUND_AGAIN = ("n_prompt_kept",)
"""How a store keeps prompts; `messages` shows that they are the same."""


class Column(NamedTuple):
    """A format."""

    name: str
    write: Callable[[Episode], Sequence[Any]]
    read: Callable[[Sequence[Any]], Reading]


def _exchange(name: str, read: Callable[[Any], Reading], *, is_lines: bool = False) -> Column:
    form = format_named(name)
    return Column(
        name,
        lambda episode: form.write(episode).values,  # type: ignore[union-attr]
        (lambda values: read(values)) if is_lines else (lambda values: read(values[0])),
    )


def _sharegpt(episode: Episode) -> Sequence[Any]:
    """The last step of an episode with its whole prompt, as it is trained on."""
    *_, prompt = episode.prompts()
    step = episode.steps[-1]
    assert prompt is not None
    assert step.completion is not None
    messages = (*prompt, step.completion)
    weights = tuple(float(message.role == "assistant") for message in messages)
    row = format_named("sharegpt").row(Example(messages, weights, step.tools or ()))  # type: ignore[union-attr]
    return [row.value]


COLUMNS = (
    _exchange("atif", read_atif),
    _exchange("adp", read_adp),
    _exchange("sts", read_sts, is_lines=True),
    _exchange("hf-messages", read_hf_messages),
    _exchange("openai-chat", read_openai_chat),
    Column("sharegpt", _sharegpt, lambda values: read_sharegpt(values[0])),
)


def table() -> str:
    """The table as Markdown."""
    episode = whole()
    backs = [_back(column, episode) for column in COLUMNS]
    rows = [("**episode**", *("" for _ in COLUMNS))]
    rows += [(f"`{name}`", *(_fate(episode, back, name) for back in backs)) for name in EPISODE_FIELDS]
    rows.append(("**step**", *("" for _ in COLUMNS)))
    rows += [
        (f"`{name}`", *(_fate_of_steps(episode, back, name) for back in backs))
        for name in STEP_FIELDS
        if name not in _NOT_FOUND_AGAIN
    ]
    rows.append(("**message content**", *("" for _ in COLUMNS)))
    rows += [(name, *(_fate_of_talk(column, talk) for column in COLUMNS)) for name, talk in _talks()]
    head = ("", *(column.name for column in COLUMNS))
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(text: str) -> str:
    """The page with its table regenerated."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


class _Back(NamedTuple):
    """An episode as it comes back."""

    whole: Episode
    stranger: Episode


def _back(column: Column, episode: Episode) -> _Back:
    values = json.loads("[" + ",".join(map(json_line, column.write(episode))) + "]")
    return _Back(column.read(values).episodes[0], column.read(_without_profile(values)).episodes[0])


def _without_profile(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_profile(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_profile(item) for name, item in value.items() if name != KEY}
    return value


def _word(ours: Any, stranger: Any, back: Any, default: Any) -> str:
    if same(ours, stranger):
        return OWN
    if same(ours, back):
        return PROFILE
    return LOST if same(back, default) else CHANGED


def _fate(episode: Episode, back: _Back, name: str) -> str:
    field = Episode.model_fields[name]
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return _word(*(getattr(one, name) for one in (episode, back.stranger, back.whole)), default)


def _fate_of_steps(episode: Episode, back: _Back, name: str) -> str:
    default = Transition.model_fields[name].get_default(call_default_factory=True)
    ours, stranger, theirs = (_values(one, name) for one in (episode, back.stranger, back.whole))
    return _word(ours, stranger, theirs, tuple(default for _ in theirs))


def _values(episode: Episode, name: str) -> tuple[Any, ...]:
    if name == "messages":  # however they are kept
        return tuple(episode.prompts())
    return tuple(getattr(step, name) for step in episode.steps)


def _talks() -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Each kind of message content, in a conversation of its own."""
    ask, answer = say("user", "x"), say("assistant", "y")
    thought = {"type": "thought", "text": "hm"}
    signed = {"type": "thought", "text": "hm", "signature": "s"}
    image = {"type": "file", "source_url": "https://host/a.png", "mime_type": "image/png"}
    document = {"type": "file", "source_url": "https://host/a.pdf", "mime_type": "application/pdf"}
    yield "text of system, user and assistant", (say("system", "r"), ask, answer)
    yield "several texts in one message", (say("user", "x", "z"), answer)
    yield "a thought", (ask, say("assistant", thought, "y"))
    yield "a thought with a signature", (ask, say("assistant", signed, "y"))
    asked = say("assistant", call("c1", arguments='{"far":true}'))
    seen = say("tool", result("c1", "a key"))
    yield "a tool call and its result", (ask, asked, seen, answer)
    beside = say("assistant", "I look.", call("c1", arguments='{"far":true}'))
    yield "text beside a tool call", (ask, beside, seen, answer)
    broken = say("assistant", call("c1", arguments="{far"))
    yield "arguments that are not JSON", (ask, broken, seen, answer)
    both = say("assistant", call("c1"), call("c2"))
    yield "two calls at once", (ask, both, seen, say("tool", result("c2", "a door")), answer)
    yield "an image by its address", (say("user", "x", image), answer)
    yield "another file by its address", (say("user", "x", document), answer)
    yield "a block of no known type", (say("user", "x", {"type": "unknown", "data": {"new": 1}}), answer)


def _fate_of_talk(column: Column, talk: tuple[Message, ...]) -> str:
    episode = Episode(episode_id="e", source="test", steps=tuple(_steps(talk)))
    try:
        back = _back(column, episode)
    except BadDocument:
        return LOST
    said = [_said(one) for one in (episode, back.stranger, back.whole)]
    if said[0] == said[1]:
        return OWN
    if said[0] == said[2]:
        return PROFILE
    return CHANGED if all(_is_there(block, said[2]) for one in talk for block in one.content) else LOST


def _is_there(block: Any, messages: tuple[Message, ...]) -> bool:
    """Whether a block came back, if not as it was: its text, or one of its kind."""
    if block.type == "text":
        return any(block.text in one.text for one in messages)
    return any(other.type == block.type for one in messages for other in one.content)


def _steps(talk: tuple[Message, ...]) -> Iterator[Transition]:
    new: list[Message] = []
    n_said = 0
    index = 0
    for message in talk:
        if message.role != "assistant":
            new.append(message)
            continue
        yield Transition(step_index=index, n_prompt_kept=n_said, messages=tuple(new), completion=message)
        n_said += len(new) + 1
        new, index = [], index + 1


def _said(episode: Episode) -> tuple[Message, ...]:
    if not episode.steps:
        return ()
    *_, prompt = episode.prompts()
    last = episode.steps[-1].completion
    return (*(prompt or ()), *((last,) if last else ()))


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
