"""Which store a verb reads, and where its result goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trajkit._core.address import place_of
from trajkit._core.output.console import talk
from trajkit._core.settings import project, remember, remembered
from trajkit.commands.options.types import Place, Settings, StoreLike
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.store.catalog import Catalog

Say: TypeAlias = Callable[[str], object]
"""Gets a message that may help the user."""


def last_job() -> tuple[Path, str] | None:
    """The folder and the name of the job that was started here last; None when there is none."""
    last = remembered("last_job")
    return None if last is None else (Path(last["runs"]), str(last["job_id"]))


def last_store(say: Say = talk) -> str:
    """The store that a command in this folder wrote last.

    Args:
        say: Gets a message that names it.

    Raises:
        RequestError: None is remembered.
    """
    value = remembered("last_store")
    path = value.get("path") if isinstance(value, dict) else None
    if not isinstance(path, str):
        raise RequestError("no STORE given, and no command has written one here", hint="try sample:babyai")
    say(f"from {near(place_of(path))} (last written)")
    return path


def near(path: Path) -> Path:
    """A path as seen from the working folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def last_evaluation(say: Say = talk) -> str:
    """The store of a report by default: the last one, unless it is training data.

    A side of a split, or a store without an evaluation episode, is not used if an evaluation was played.

    Args:
        say: Gets a message that names it.

    Raises:
        RequestError: None is remembered.
    """
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    played = (remembered("last_evaluation") or {}).get("path")
    last = (remembered("last_store") or {}).get("path")
    if last is not None and last != played:
        store = open_store(last)
        if store.manifest.split is None and (played is None or "eval" in summarize(store).purposes):
            return last_store(say)
    if played is None:
        raise RequestError(
            "no STORE given, and no evaluation was played here",
            hint="`trajkit evaluate` plays one; `trajkit report STORE` reports on any episodes",
        )
    say(f"from {near(place_of(played))} (last evaluation)")
    return str(played)


def remember_store(path: Path, *, is_evaluation: bool = False) -> None:
    """Remember a store as the last one, and as the last evaluation if it is one."""
    remember("last_store", {"path": str(path.absolute())})
    if is_evaluation:
        remember("last_evaluation", {"path": str(path.absolute())})


def goal_of(verb: str, given: str | Path | None) -> Path:
    """Where the new store goes: -o, else `<stores>/<verb>-<UTC time>`, with a number if taken."""
    if given is not None:
        return place_of(given)
    return free(f"{verb}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")


def free(name: str) -> Path:
    """A free path in the folder of stores: this name, with a number if it is taken."""
    base = goal = Path(project().stores) / name
    number = 1
    while goal.exists():
        number += 1
        goal = base.with_stem(f"{base.stem}-{number}")
    return goal


def catalog() -> Catalog:
    """The catalog of the folder of stores: tags, and what was forgotten."""
    from trajkit.store.catalog import Catalog

    return Catalog(project().stores)


def store_path(store: StoreLike | None) -> str:
    """Where a store is: a folder, `sample:NAME`, or `@NAME` for the one that `trajkit tag` gave that name.

    If none is given, it is the last one written here. `./@NAME` is a folder of that name.

    Raises:
        RequestError: None is given and none was written, there is no such tag, or it is a view of a part.
        StoreError: The store of the tag is gone, or is another one now.
    """
    if store is None:
        return last_store()
    if isinstance(store, str | Path):
        text = str(store)
        return catalog().find(text[1:]) if text.startswith("@") else text
    from trajkit.store.dataset import Dataset

    if isinstance(store, Dataset):
        if store.verbs:
            raise RequestError(
                f"{store!r} is a view, and a verb reads stores", hint=".save('stores/mine') writes it as one"
            )
        return str(store.store.path)
    if store.path is None:
        raise RequestError("the result of a dry run is not a store", hint="leave dry_run out")
    return str(store.path)


def store_paths(stores: StoreLike | Iterable[StoreLike] | None) -> list[str]:
    """Where some stores are; the last one written here if none is given."""
    from trajkit.commands.result import Made
    from trajkit.store.dataset import Dataset

    if stores is None or isinstance(stores, str | Path | Dataset | Made):
        return [store_path(stores)]
    return [store_path(store) for store in stores] or [last_store()]


def path_or_none(given: Place | None) -> Path | None:
    """A path, if one is given."""
    return None if given is None else place_of(given)


def texts(settings: Settings | None) -> dict[str, str]:
    """Settings as they would be typed: true, false and null as in JSON."""
    words: dict[Any, str] = {True: "true", False: "false", None: "null"}
    return {
        name: words[value] if value is None or isinstance(value, bool) else str(value)
        for name, value in (settings or {}).items()
    }
