"""Read a gateway's configuration from files and embed the templates that they name, as in a snapshot."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trajkit.errors import ConfigError
from trajkit.sources.tensorzero.render.config import DATA, PATH, ROLES, Configuration, parsed, table_in


def from_file(path: Path) -> Configuration:
    """Read the configuration in a `tensorzero.toml`, or in all matches of a pattern like `config/**/*.toml`.

    Raises:
        ConfigError: There is no such file, it is not TOML, or two files declare the same key.
    """
    paths = [path] if path.is_file() else sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 -- a pattern may be absolute
    if not paths:
        raise ConfigError(f"there is no {path}", hint="name the gateway's tensorzero.toml")
    document: dict[str, Any] = {}
    for one in paths:
        try:
            text = one.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{one} cannot be read: {error}") from error
        _merge(document, _resolved(parsed(str(one), text), one.parent), where=str(one))
    _shorten(document)
    base = table_in(table_in(document, "gateway"), "template_filesystem_access").get("base_path")
    folder = None if base is None else Path(str(base))
    return Configuration(str(path), document, read=lambda key: None, load=lambda key: _included(folder, key))


def _merge(goal: dict[str, Any], document: Mapping[str, Any], *, where: str) -> None:
    for key, value in document.items():
        if isinstance(value, dict) and isinstance(goal.get(key), dict):
            _merge(goal[key], value, where=where)
        elif key in goal:
            raise ConfigError(f"{where}: {key!r} is declared in another file too")
        else:
            goal[key] = value


def _resolved(document: dict[str, Any], home: Path) -> dict[str, Any]:
    """Return a configuration with the contents of the files that its functions name, as in a snapshot.

    Args:
        document: The file, parsed.
        home: Its folder; names in it are relative to that.
    """
    done = {**document, "functions": _with_files(table_in(document, "functions"), home)}
    if "tools" in document:
        done["tools"] = {
            name: _with_place(table, home) for name, table in table_in(document, "tools").items()
        }
    access = table_in(table_in(document, "gateway"), "template_filesystem_access")
    if isinstance(base := access.get("base_path"), str):
        found = {**access, "base_path": str((home / base).resolve())}
        done["gateway"] = {**document["gateway"], "template_filesystem_access": found}
    return done


def _with_files(table: Mapping[str, Any], home: Path, *, parent: str = "") -> dict[str, Any]:
    done: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            done[name] = _with_files(value, home, parent=name)
        elif isinstance(value, str) and _is_file_name(name, parent=parent):
            done[name] = _file(home / value)
        else:
            done[name] = value
    return done


def _with_place(tool: Any, home: Path) -> dict[str, Any]:
    """A tool with the place of its parameters, wherever it is read from."""
    table = dict(table_in(tool))
    if isinstance(name := table.get("parameters"), str):
        table["parameters"] = str((home / name).resolve())
    return table


def _is_file_name(name: str, *, parent: str) -> bool:
    return (
        name == "path"
        or name.endswith(("_template", "_schema"))
        or (parent == "input_wrappers" and name in ROLES)
    )


def _file(path: Path) -> dict[str, str]:
    found = {PATH: str(path.resolve())}
    try:
        found[DATA] = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass  # an error when this template is used
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return found


def _shorten(document: dict[str, Any]) -> None:
    """Name the files from the folder that they share, as the gateway does."""
    files = list(_files(document))
    folders = {str(Path(file[PATH]).parent) for file in files}
    shared = os.path.commonpath(folders) if folders else ""
    for file in files:
        file[PATH] = os.path.relpath(file[PATH], shared)


def _files(table: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for value in table.values():
        if isinstance(value, dict):
            if PATH in value:
                yield value
            else:
                yield from _files(value)


def _included(folder: Path | None, key: str) -> str | None:
    """Return the text of an included template; None for names that lead out of the folder."""
    steps = key.split("/")
    if folder is None or any(step.startswith(".") or "\\" in step or "\0" in step for step in steps):
        return None
    try:
        return folder.joinpath(*steps).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / key} cannot be read: {error}") from error
