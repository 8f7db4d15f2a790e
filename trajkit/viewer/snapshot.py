"""The page with some episodes in it, as one file that can be sent to somebody."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trajkit._core.console import line, plural, size
from trajkit._core.files import refuse_existing, write_text
from trajkit._core.result import Result
from trajkit.errors import NothingMatched, RequestError
from trajkit.viewer.about import funnel, stores
from trajkit.viewer.asked import Asked
from trajkit.viewer.episode import episode
from trajkit.viewer.listing import rows
from trajkit.viewer.page_files import page_files
from trajkit.viewer.shelf import Shelf

LIMIT = 200
"""Episodes in a file where nothing else is said."""
MOST_BYTES = 40_000_000
"""Of the episodes in a file: what browsers open with ease."""

_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
_STYLE = re.compile(r'<link rel="stylesheet" href="page/([\w.-]+)">')
_SCRIPT = re.compile(r'<script type="module" src="page/([\w.-]+)"></script>')
_HEAD = re.compile(r'<meta charset="utf-8">')
_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"\./([\w.-]+)";[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function|class|const)\s+([\w$]+)", re.MULTILINE)
_LEFT = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


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


def one_page(files: Mapping[str, str], data: str) -> str:
    """A page that needs no other file and asks for none, and runs no script but its own.

    Args:
        files: The texts of the page's files, by name.
        data: JSON that the page finds in an element called `data`; `<` does not occur in it.

    Raises:
        ValueError: The files are not written as this module reads them.
    """
    index = files["index.html"]
    style = files[_only(_STYLE, index)]
    script = bundle(files, _only(_SCRIPT, index))
    if "</script" in script.lower() or "<!--" in script or "</style" in style.lower() or "<" in data:
        raise ValueError("a text would end the element that it stands in")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    replaced = (
        (_HEAD, f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (_STYLE, f"<style>{style}</style>"),
        (
            _SCRIPT,
            f'<script type="application/json" id="data">{data}</script>\n'
            f'<script type="module">{script}</script>',
        ),
    )
    for pattern, text in replaced:
        _only(pattern, index)
        index = pattern.sub(lambda _, text=text: text, index)  # type: ignore[misc]
    return index


def bundle(files: Mapping[str, str], entry: str) -> str:
    """Modules that import each other as one script: each becomes a function that gives what it exports.

    Args:
        files: Their texts, by name.
        entry: The one that runs last.

    Raises:
        ValueError: They import each other in a circle, or in a way that this does not read.
    """
    done: dict[str, str] = {}
    _add(files, entry, done, ())
    return "\n".join(done.values())


def _add(files: Mapping[str, str], name: str, done: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"{' → '.join((*above, name))} is a circle of imports")
    if name in done:
        return
    for _, imported in _IMPORT.findall(files[name]):
        _add(files, imported, done, (*above, name))
    exported = [found for _, found in _EXPORT.findall(files[name])]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_free_ports, files[name]))
    if left := _LEFT.search(body):
        raise ValueError(f"{name}: {left[0].strip()!r} cannot be read")
    done[name] = f"const {_called(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _free_ports(found: re.Match[str]) -> str:
    if found[1] is None:
        return ""
    return f"const {{{found[1].replace(' as ', ': ')}}} = {_called(found[2])};"


def _called(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)


def _only(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    if len(found) != 1:
        raise ValueError(f"{pattern.pattern} occurs {len(found)} times in index.html")
    return str(found[0])


def _hash(text: str) -> str:
    """The name by which a browser is allowed to run exactly this."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
