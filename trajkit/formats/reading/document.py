"""Read documents of other tools: their episodes, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import ValidationError

from trajkit._core.times import utc_of
from trajkit.errors import DataError
from trajkit.formats.base import Problem
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

_MOST_SHOWN = 80


class BadDocument(DataError):
    """A document that is not valid, or cannot be an episode.

    Args:
        kind: What is wrong, from a small set of texts, so that documents can be counted by it.
        where: Its place in the document, such as `steps.2.source`; empty for the whole document.
        value: The wrong value; empty if there is none to show.
    """

    def __init__(self, kind: str, where: str = "", value: str = "") -> None:
        self.problem = Problem(kind, where or "the document", value)
        super().__init__(str(self.problem))


class Reading(NamedTuple):
    """The episodes of a document."""

    episodes: tuple[Episode, ...]
    """The document's own episode, then those of its sub-agents."""
    is_exact: bool = False
    """Whether trajkit wrote the document, so that the episode is unchanged."""
    is_named: bool = True
    """Whether the document has an id of its own; else the caller assigns one."""
    is_log: bool = False
    """Whether a program logged what it sent to a model, so that no prompt in it is wrong, however odd."""


def of_one(read: Callable[[JsonObject], Reading]) -> Callable[[Sequence[JsonObject]], Episode]:
    """Return the `EpisodeFormat.read` of documents of one object; episodes of sub-agents are left out."""
    return lambda values: read(values[0]).episodes[0]


def renamed(episodes: Sequence[Episode], episode_id: str) -> tuple[Episode, ...]:
    """Return the episodes of one document under another id, with which the ids of its sub-agents begin."""
    before = episodes[0].episode_id
    found = [episodes[0].model_copy(update={"episode_id": episode_id})]
    for sub in episodes[1:]:
        parent = (sub.origin or {}).get("parent_episode_id")
        again: dict[str, Any] = {"episode_id": _moved(sub.episode_id, before, episode_id)}
        if isinstance(parent, str):
            again["origin"] = {**(sub.origin or {}), "parent_episode_id": _moved(parent, before, episode_id)}
        found.append(sub.model_copy(update=again))
    return tuple(found)


def _moved(name: str, before: str, after: str) -> str:
    return after if name == before else f"{after}/{name.removeprefix(f'{before}/')}"


def shown(value: Any) -> str:
    """Return a short representation of a value, for messages."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def episode_of(value: Mapping[str, Any]) -> Episode:
    """Return the episode of its fields.

    Raises:
        BadDocument: The fields are not valid.
    """
    try:
        return Episode.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadDocument(
            first["msg"].removeprefix("Value error, "), where, "" if where == "" else shown(first["input"])
        ) from error


def object_at(value: Any, where: str) -> dict[str, Any]:
    """Return the value, which must be an object.

    Raises:
        BadDocument: It is not an object.
    """
    if not isinstance(value, dict):
        raise BadDocument("not an object", where, shown(value))
    return value


def part_of(value: Mapping[str, Any], name: str, where: str = "") -> dict[str, Any]:
    """Return the object that a document has under a name; empty if there is none.

    Raises:
        BadDocument: It is not an object.
    """
    found = value.get(name)
    return {} if found is None else object_at(found, f"{where}.{name}" if where else name)


def objects_at(value: Any, where: str) -> Sequence[dict[str, Any]]:
    """Return the value, which must be a list of objects; empty for null.

    Raises:
        BadDocument: It is not a list of objects.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadDocument("not a list", where, shown(value))
    return [object_at(item, f"{where}.{position}") for position, item in enumerate(value)]


def text_at(value: Any, where: str) -> str:
    """Return the value, which must be text.

    Raises:
        BadDocument: It is not text.
    """
    if not isinstance(value, str):
        raise BadDocument("not a text", where, shown(value))
    return value


def time_at(value: Any, where: str) -> datetime | None:
    """Parse a time in ISO 8601; without a zone it is taken for UTC.

    Returns:
        None for null and for an empty text.

    Raises:
        BadDocument: It is not a time.
    """
    if value in (None, ""):
        return None
    try:
        return utc_of(text_at(value, where))
    except ValueError:
        raise BadDocument("not a time", where, shown(value)) from None


def known_time_at(value: Any, where: str) -> datetime:
    """Return the time as `time_at` does.

    Raises:
        BadDocument: It is not a time, or missing.
    """
    found = time_at(value, where)
    if found is None:
        raise BadDocument("not a time", where, shown(value))
    return found
