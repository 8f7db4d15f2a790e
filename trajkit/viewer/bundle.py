"""The files of the page as one: its modules as one script, and that and its style inside the page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping

_STYLE = re.compile(r'<link rel="stylesheet" href="page/([\w.-]+)">')
_SCRIPT = re.compile(r'<script type="module" src="page/([\w.-]+)"></script>')
_HEAD = re.compile(r'<meta charset="utf-8">')
_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"\./([\w.-]+)";[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function|class|const)\s+([\w$]+)", re.MULTILINE)
_LEFT = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


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
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_taken, files[name]))
    if left := _LEFT.search(body):
        raise ValueError(f"{name}: {left[0].strip()!r} cannot be read")
    done[name] = f"const {_called(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _taken(found: re.Match[str]) -> str:
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
