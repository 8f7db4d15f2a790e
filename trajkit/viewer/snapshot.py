"""Write the page with some episodes as one file that can be sent to others."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajkit._core.files import refuse_existing, write_text
from trajkit._core.output.console import line, plural, size
from trajkit._core.output.result import Result
from trajkit.errors import NothingMatched, RequestError
from trajkit.viewer.about import funnel, stores
from trajkit.viewer.episode import episode
from trajkit.viewer.filter import Filter
from trajkit.viewer.listing import rows
from trajkit.viewer.server import page_files
from trajkit.viewer.shelf import Shelf

LIMIT = 200
"""Default number of episodes in a file."""
MOST_BYTES = 40_000_000
"""Maximum bytes of the episodes in a file, so that browsers open it easily."""

_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
_STYLE = re.compile(r'<link rel="stylesheet" href="page/([\w.-]+)">')
_SCRIPT = re.compile(r'<script type="module" src="page/([\w.-]+)"></script>')
_HEAD = re.compile(r'<meta charset="utf-8">')
_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"\./([\w.-]+)";[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function|class|const)\s+([\w$]+)", re.MULTILINE)
_LEFT = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Snapshot(Result):
    """The file that was written."""

    path: Path
    """Path of the file."""
    n_episodes: int
    """Number of episodes in it."""
    n_chosen: int
    """Number of episodes that were chosen."""
    n_bytes: int
    """Size of the file."""
    note: str | None
    """The left-out episodes and the reasons; None when there are none."""

    def __str__(self) -> str:
        return line(f"{self.path}  {plural(self.n_episodes, 'episode')}  {size(self.n_bytes)}")


def write_snapshot(shelf: Shelf, goal: Path, *, where: str | None = None, limit: int = LIMIT) -> Snapshot:
    """Write the page with the first chosen episodes as one file.

    Args:
        shelf: The stores.
        goal: Path of the new file.
        where: Condition in the language of `trajkit select`; None for all episodes.
        limit: Maximum number of episodes; fewer are written if they are too large.

    Raises:
        StoreError: `goal` exists.
        RequestError: `limit` is less than 1.
        NothingMatched: No episode meets the condition.
    """
    if limit < 1:
        raise RequestError(f"limit is {limit}; it must be 1 or more")
    refuse_existing(goal)
    shelf.wait()
    with shelf.index.held():
        condition = shelf.condition(Filter({}, where=where))
        chosen = rows(shelf.index, condition, f"ORDER BY n LIMIT {limit}")
        ((n_chosen,),) = shelf.index.ask(f"SELECT count(*) FROM rows WHERE {condition}")
    if not chosen:
        raise NothingMatched(f"no episode meets {where}" if where else "there are no episodes")
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
    files = {name: found.body.decode() for name, found in page_files().items()}
    write_text(goal, one_page(files, data))
    return Snapshot(goal, len(taken), n_chosen, goal.stat().st_size, note)


def _taken(shelf: Shelf, chosen: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield the episodes that fit, as JSON."""
    left = MOST_BYTES
    for row in chosen:
        text = _json(_whole(shelf, row["store"], row["id"], left))
        if (n_bytes := len(text.encode())) <= left:
            left -= n_bytes
            yield (row["store"], row["id"]), text
        if left < MOST_BYTES // 100:  # hardly any other episode would fit
            return


def _whole(shelf: Shelf, store: int, episode_id: str, most: int) -> dict[str, Any]:
    """Return an episode with all its steps, or with only enough to exceed the limit."""
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
    """Return JSON that cannot end an HTML element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def one_page(files: Mapping[str, str], data: str) -> str:
    """Return a self-contained page that loads nothing and runs only its own script.

    Args:
        files: Texts of the page's files, by name.
        data: JSON for the page, in an element called `data`; it has no `<`.

    Raises:
        ValueError: The files do not have the expected form.
    """
    index = files["index.html"]
    style = files[_only(_STYLE, index)]
    script = bundle(files, _only(_SCRIPT, index))
    if "</script" in script.lower() or "<!--" in script or "</style" in style.lower() or "<" in data:
        raise ValueError("a text would end its HTML element")
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
    """Bundle modules as one script: each becomes a function that returns its exports.

    Args:
        files: Texts of the modules, by name.
        entry: The module that runs last.

    Raises:
        ValueError: The imports form a circle, or have a form that this does not parse.
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
    """Return the hash by which the policy allows exactly this script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
