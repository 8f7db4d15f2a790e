"""Show the history of a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trajkit._core.output.console import count, line, plural
from trajkit._core.output.result import Result
from trajkit.commands.history import SHORT, Shelves, Unrepeatable, Version, history, opened, words_of
from trajkit.commands.options.types import StoreLike
from trajkit.commands.place import catalog
from trajkit.store.tally import as_recorded, quoted

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry


@dataclass(frozen=True)
class Logged:
    """A version in a history, as it is shown."""

    depth: int
    """How many merges it is inside."""
    version: Version
    """The version."""
    command: str | None
    """The command that makes it from its parents; None if unknown."""
    names: tuple[str, ...]
    """Where it is, its tags, and where it was published."""

    def to_json(self) -> dict[str, Any]:
        """The version with its entry, the command and the names."""
        entry = self.version.entry
        return {
            "digest": self.version.digest,
            "depth": self.depth,
            "names": list(self.names),
            "command": self.command,
            "parents": [each.digest for each in self.version.parents],
            "entry": None if entry is None else entry.model_dump(mode="json"),
        }


class Log(list[Logged], Result):
    """The history of a store, newest version first; the parents of a merge follow it, one after another.

    Args:
        versions: The versions.
        oneline: Whether each takes one line as text.
    """

    def __init__(self, versions: Iterator[Logged], *, oneline: bool = False) -> None:
        super().__init__(versions)
        self._oneline = oneline

    def to_json(self) -> list[dict[str, Any]]:
        """Each version."""
        return [each.to_json() for each in self]

    def __str__(self) -> str:
        blocks = [[_line(each)] if self._oneline else list(_block(each)) for each in self]
        texts = [
            "\n".join(line("| " * each.depth + text) for text in block)
            for each, block in zip(self, blocks, strict=True)
        ]
        return ("\n" if self._oneline else "\n\n").join(texts)


def log(store: StoreLike | None = None, *, oneline: bool = False) -> Log:
    """Show the history of a store, newest first.

    Each version has its digest, its tags and folders, the command that made it, what was left out and why,
    the time and the version of trajkit. A store in a command is its folder if it exists, else the beginning
    of its digest. The histories of merged stores are indented, one after another.

    Args:
        store: The store; its parts may be missing. Default: the last store written here.
        oneline: Show one line per version.

    Raises:
        StoreError: There is no manifest of a store.

    Example:
        trajkit log stores/sides/train
    """
    _, manifest = opened(store)
    naming = _Naming(Shelves(()))
    published = [f"{each.repository}@{each.tag or each.commit[:SHORT]}" for each in manifest.published]
    return Log(_logged(history(manifest), 0, naming, tuple(published)), oneline=oneline)


class _Naming:
    """The names of the versions."""

    def __init__(self, shelves: Shelves) -> None:
        self.shelves = shelves
        self._tags: dict[str, list[str]] = {}
        for name, stores in sorted(catalog().tags().items()):
            for number, each in enumerate(stores):
                is_now = number + 1 == len(stores)
                text = (
                    f"@{name}" if is_now else f"@{name} until {stores[number + 1].tagged_at:%Y-%m-%d %H:%M}"
                )
                self._tags.setdefault(each.digest, []).append(text)

    def names(self, digest: str | None) -> tuple[str, ...]:
        place = self.shelves.find(digest)
        return (*self._tags.get(digest or "", ()), *([] if place is None else [place]))

    def command(self, version: Version) -> str | None:
        if version.entry is None:
            return None
        try:
            parents = [self.shelves.named(each.digest) for each in version.parents]
            words = words_of(version, parents, self.shelves.named)
        except Unrepeatable:  # it is shown as it was recorded
            return as_recorded(version.entry)
        return " ".join(["trajkit", *map(quoted, words)])


def _logged(
    newest: Version, depth: int, naming: _Naming, more: tuple[str, ...] = (), *, until: Version | None = None
) -> Iterator[Logged]:
    version: Version | None = newest
    while version is not None and version is not until:
        names = (*naming.names(version.digest), *more)
        yield Logged(depth, version, naming.command(version), names)
        more = ()
        if len(version.parents) > 1:
            for parent in version.parents:
                yield from _logged(parent, depth + 1, naming, until=version.shared)
            version = version.shared
        else:
            version = version.parents[0] if version.parents else None


def _head(each: Logged) -> str:
    digest = (each.version.digest or "unknown")[:SHORT]
    return f"{digest}  ({', '.join(each.names)})" if each.names else digest


def _line(each: Logged) -> str:
    entry = each.version.entry
    if entry is None:
        return f"{_head(each)}  nothing is known of it"
    first, *others = (each.command or "").splitlines() or [""]
    return f"{_head(each)}  {first}{' …' if others else ''}  # {_kept(entry)}"


def _block(each: Logged) -> Iterator[str]:
    yield _head(each)
    entry = each.version.entry
    if entry is None:
        yield "    nothing is known of it"
        return
    yield from (f"    {text}" for text in (each.command or "").splitlines())
    yield f"    {entry.done_at:%Y-%m-%d %H:%M} UTC, trajkit {entry.trajkit_version}"
    yield f"    {_kept(entry)}, {count(entry.n_steps_out)} of {plural(entry.n_steps_in, 'step')}"
    for left in entry.left:
        number = plural(left.n_episodes, "episode") if left.n_episodes else plural(left.n_steps, "step")
        yield f"    left: {number}: {left.reason}"
    for masked in entry.masked:
        yield f"    not learned: {plural(masked.n_steps, 'step')}: {masked.reason}"


def _kept(entry: LineageEntry) -> str:
    return f"{count(entry.n_episodes_out)} of {plural(entry.n_episodes_in, 'episode')}"
