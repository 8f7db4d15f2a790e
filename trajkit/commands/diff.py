"""Compare the content of two stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trajkit._core.output.console import Cell, count, line, plural, table_text
from trajkit._core.output.result import Result
from trajkit.commands.options.types import StoreLike
from trajkit.commands.place import near, store_path

if TYPE_CHECKING:
    from trajkit.curation.difference import Difference


@dataclass(frozen=True)
class Compared(Result):
    """What differs between two stores."""

    difference: Difference
    """The numbers."""

    def to_json(self) -> dict[str, Any]:
        """The numbers, with the first ids of each group and the commands between the two."""
        return {**self.difference.model_dump(mode="json"), "is_equal": self.difference.is_equal}

    def __str__(self) -> str:
        return "\n".join(map(line, _lines(self.difference)))


def diff(a: StoreLike, b: StoreLike) -> Compared:
    """Compare the content of two stores: episodes that one lacks, episodes and columns that changed, and why.

    Episodes are compared by their ids. Parts, paths and times of writing are ignored. If B was made from A,
    its history shows why an episode was dropped.

    Args:
        a: The first store, usually the older one.
        b: The second store.

    Raises:
        StoreError: A store cannot be read.

    Example:
        trajkit diff stores/monday stores/tuesday
    """
    from trajkit.curation.difference import difference

    return Compared(difference(store_path(a), store_path(b)))


def _lines(found: Difference) -> Iterator[str]:
    if found.is_equal:
        yield f"equal: {plural(found.n_equal, 'episode')}, digest {found.digests[0][:12]}"
        return
    a, b = near(found.a), near(found.b)
    rows = [
        (name, count(number), next(iter(first), ""))
        for name, number, first in (
            ("equal", found.n_equal, ()),
            ("changed", found.changed.n, found.changed.first),
            (f"only in {a}", found.only_a.n, found.only_a.first),
            (f"only in {b}", found.only_b.n, found.only_b.first),
        )
    ]
    yield from table_text([Cell(""), Cell("episodes", is_number=True), Cell("such as")], rows).splitlines()
    parts = [f"{name} in {plural(number, 'row')}" for name, number in found.columns.items()]
    parts += [
        f"{plural(number, 'step')} only in {place}"
        for number, place in ((found.n_steps_only_a, a), (found.n_steps_only_b, b))
        if number
    ]
    if parts:
        yield f"changed: {'; '.join(parts)}"
    for names, place in ((found.metrics_only_a, a), (found.metrics_only_b, b)):
        if names:
            yield f"metrics only in {place}: {', '.join(names)}"
    for entry in found.why:
        for each in (*entry.left, *entry.masked):
            number = plural(each.n_episodes, "episode") if each.n_episodes else plural(each.n_steps, "step")
            yield f"{entry.verb}: {number}: {each.reason}"
