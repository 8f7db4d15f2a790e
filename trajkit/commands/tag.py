"""Give stores names that stay when folders change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.output.console import Cell, line, plural, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, StoreLike
from trajkit.commands.place import catalog, store_path
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.store.catalog import Tagged


@dataclass(frozen=True)
class Tags(Result):
    """Tags, each with the stores that it named."""

    tags: dict[str, tuple[Tagged, ...]]
    """By tag its stores, oldest first; the last one counts."""

    def to_json(self) -> dict[str, Any]:
        """By tag its store, and those that it named before."""
        return {
            name: {
                **stores[-1].model_dump(mode="json"),
                "before": [each.model_dump(mode="json") for each in stores[:-1]],
            }
            for name, stores in self.tags.items()
        }

    def __str__(self) -> str:
        return "\n".join(map(line, self._lines()))

    def _lines(self) -> Iterator[str]:
        if not self.tags:
            return
        rows = [
            (
                f"@{name}",
                stores[-1].digest[:12],
                catalog().place(stores[-1]),
                f"{stores[-1].tagged_at:%Y-%m-%d %H:%M}",
            )
            for name, stores in sorted(self.tags.items())
        ]
        yield from table_text([Cell("tag"), Cell("digest"), Cell("store"), Cell("since")], rows).splitlines()


def tag(
    store: StoreLike | None = None,
    name: str | None = None,
    *,
    delete: Annotated[str | None, Option(metavar="NAME")] = None,
) -> Tags:
    """Give a store a name, or list the names.

    `@NAME` then names the store wherever a command takes one. A tag keeps the folder of the store and its
    digest: if the folder now holds another store, the command that uses the tag ends with an error. A tag
    that is given to another store moves to it, and `trajkit log` shows where it was. The tags are in
    `catalog.json` in the folder of stores.

    Args:
        store: The store. Default: list the tags.
        name: Its name: letters, digits, _, - and a dot.
        delete: Remove this tag; the store stays.

    Raises:
        RequestError: There is no such tag, or the name is invalid.
        StoreError: It is not a store, or the catalog cannot be read or written.

    Example:
        trajkit tag stores/goto best
        trajkit info @best
    """
    known = catalog()
    if delete is not None:
        if store is not None:
            raise RequestError("--delete NAME and STORE NAME exclude each other", hint="leave one out")
        gone = known.delete(delete.removeprefix("@"))
        talk(f"@{delete.removeprefix('@')} is removed; the store {known.place(gone)} stays")
        return Tags({})
    if store is None:
        found = known.tags()
        talk(plural(len(found), "tag") if found else "no store has a tag")
        return Tags(found)
    if name is None:
        raise RequestError(f"no NAME for {store_path(store)}", hint=f"trajkit tag {store_path(store)} best")
    name = name.removeprefix("@")
    before = known.tags().get(name, ())
    new = known.tag(name, store_path(store))
    if before and before[-1].digest != new.digest:
        talk(f"@{name} was {known.place(before[-1])} ({before[-1].digest[:12]})")
    return Tags({name: (*before, new) if new not in before else before})
