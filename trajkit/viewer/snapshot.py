"""The page with some episodes in it, as one file that can be sent to somebody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trajkit._core.console import line, plural, size
from trajkit._core.files import refuse_existing, write_text
from trajkit._core.result import Result
from trajkit.errors import NothingMatched, RequestError
from trajkit.viewer.about import funnel, stores
from trajkit.viewer.asked import Asked
from trajkit.viewer.bundle import one_page
from trajkit.viewer.episode import episode
from trajkit.viewer.listing import rows
from trajkit.viewer.page_files import page_files
from trajkit.viewer.shelf import Shelf

LIMIT = 200
"""Episodes in a file where nothing else is said."""
MOST_BYTES = 40_000_000
"""Of the episodes in a file: what browsers open with ease."""

_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


@dataclass(frozen=True)
class Snapshot(Result):
    """What was written."""

    path: Path
    """The file."""
    n_episodes: int
    """Episodes in it."""
    n_chosen: int
    """Episodes that it was made for."""
    n_bytes: int
    """Its size."""
    note: str | None
    """What is not in it and why; None when all is."""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {**asdict(self), "path": str(self.path)}

    def __str__(self) -> str:
        return line(f"{self.path}  {plural(self.n_episodes, 'episode')}  {size(self.n_bytes)}")


def write_snapshot(shelf: Shelf, goal: Path, *, where: str | None = None, limit: int = LIMIT) -> Snapshot:
    """Write the page with its first episodes as one file.

    Args:
        shelf: Their stores.
        goal: The file that exists afterwards.
        where: Which episodes, in the words of `trajkit select`; None for all.
        limit: At most so many; fewer where they are too large.

    Raises:
        StoreError: `goal` exists.
        RequestError: `limit` is less than 1.
        NothingMatched: No episode is chosen.
    """
    if limit < 1:
        raise RequestError(f"limit is {limit}; it is 1 or more")
    refuse_existing(goal)
    shelf.wait()
    with shelf.index.held():
        condition = shelf.condition(Asked({}, where=where))
        chosen = rows(shelf.index, condition, f"ORDER BY n LIMIT {limit}")
        ((n_chosen,),) = shelf.index.ask(f"SELECT count(*) FROM rows WHERE {condition}")
    if not chosen:
        raise NothingMatched(f"no episode is left: not {where}" if where else "there are no episodes")
    taken = dict(_taken(shelf, chosen))
    note = _note(len(taken), len(chosen), n_chosen)
    shown = [row for row in chosen if (row["store"], row["id"]) in taken]
    head = {
        "stores": stores(shelf, {}),
        "episodes": {"rows": shown},
        "charts": {"funnel": funnel(shelf)},
        "limited": {"n": len(taken), "total": n_chosen, "note": note} if note else None,
    }
    episodes = ",".join(f"{_json(f'{store}/{name}')}:{text}" for (store, name), text in taken.items())
    data = f'{_json(head)[:-1]},"episode":{{{episodes}}}}}'
    files = {name: found.content.decode() for name, found in page_files().items()}
    write_text(goal, one_page(files, data))
    return Snapshot(goal, len(taken), n_chosen, goal.stat().st_size, note)


def _taken(shelf: Shelf, chosen: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, str], str]]:
    """The episodes that fit, as JSON."""
    left = MOST_BYTES
    for row in chosen:
        text = _json(_whole(shelf, row["store"], row["id"], left))
        if (n_bytes := len(text.encode())) <= left:
            left -= n_bytes
            yield (row["store"], row["id"]), text
        if left < MOST_BYTES // 100:  # hardly any other would fit, and there may be very many
            return


def _whole(shelf: Shelf, store: int, episode_id: str, most: int) -> dict[str, Any]:
    """An episode with all its steps, or with so many of the first that it does not fit."""
    place = {"store": [str(store)], "id": [episode_id]}
    found = episode(shelf, place)
    n_characters = len(_json(found))
    more = found["next"]
    while more is not None and n_characters <= most:
        piece = episode(shelf, {**place, "offset": [str(more)]})
        found["steps"] += piece["steps"]
        n_characters += len(_json(piece["steps"]))
        more = piece["next"]
    return {**found, "next": more}


def _note(n: int, n_tried: int, n_chosen: int) -> str | None:
    if n == n_chosen:
        return None
    parts = [f"the first {n_tried:,} of {n_chosen:,} were asked for"] if n_tried < n_chosen else []
    if n < n_tried:
        parts.append(f"{n_tried - n:,} did not fit into {MOST_BYTES // 1_000_000} MB")
    return f"{n:,} of {n_chosen:,} episodes: {', and '.join(parts)}"


def _json(value: Any) -> str:
    """JSON that ends no element, whatever is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)
