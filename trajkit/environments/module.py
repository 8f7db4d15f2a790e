"""Import an object of the user by its name `my_pkg.module:Name`, from the working folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trajkit.environments.quiet import quiet
from trajkit.environments.settings import nearest
from trajkit.errors import RequestError, TrajkitError


def attribute(spec: str, *, noun: str) -> Any:
    """Import an object from a module. What the module prints while it loads goes to stderr.

    Args:
        spec: `module:name`; the name may have dots.
        noun: The kind of object, for messages.

    Raises:
        RequestError: The spec has another form, or the module cannot be imported or has no such name.
    """
    name, colon, path = spec.partition(":")
    if not (colon and all(part.isidentifier() for part in (*name.split("."), *path.split(".")))):
        raise RequestError(f"{spec!r} names no {noun}", hint=_spelling(name, path))
    found: Any = imported(name)
    for part in path.split("."):
        if not hasattr(found, part):
            named = [other for other in dir(found) if not other.startswith("_")]
            raise RequestError(f"{name} has no {part!r}", hint=nearest(part, named) or None)
        found = getattr(found, part)
    return found


def _spelling(name: str, path: str) -> str:
    if name.endswith(".py"):
        dotted = name.removeprefix("./").removesuffix(".py").replace("/", ".")
        return f"write {dotted}:{path or 'Name'}"
    return "write it as my_pkg.module:Name"


def imported(name: str) -> ModuleType:
    """Import a module of the user. The working folder is searched first.

    Raises:
        RequestError: The module cannot be imported.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does
    importlib.invalidate_caches()
    try:
        with quiet():
            return importlib.import_module(name)
    except TrajkitError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise RequestError(
                f"there is no module {name!r}", hint=f"looked in {folder} and among the installed packages"
            ) from error
        raise RequestError(
            f"{name} imports {missing!r}, which is not installed",
            hint=f"pip install {missing.partition('.')[0]}",
        ) from error
    except (Exception, SystemExit) as error:
        raise RequestError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
