"""Which stores are published, and as which splits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trajkit._core.outside import name_from_outside
from trajkit.curation.stats import stores_in
from trajkit.errors import NothingMatched, RequestError
from trajkit.store.dataset import Dataset
from trajkit.store.reader import Store, verify

_SPLIT = re.compile(r"\w+(\.\w+)*")
_TRAIN, _TEST = "train", "test"


def splits_of(paths: Iterable[str | Path]) -> dict[str, Store]:
    """The stores by split, checked byte for byte.

    A store is the side of a split that its manifest says, else what its folder is called where there are
    several, else `train`; `test` where all its episodes were played for evaluation.

    Args:
        paths: Stores, or folders of stores as `trajkit split` leaves them.

    Raises:
        StoreError: One of them is no store, is damaged, or is of a newer version.
        RequestError: Two have the same name, or a name that no split may have.
        NothingMatched: One has no episode.
    """
    stores = [store for path in paths for store in stores_in(path)]
    if not stores:
        raise RequestError("no store is named")
    found: dict[str, Store] = {}
    for store in stores:
        if not store.manifest.counts.n_episodes:
            raise NothingMatched(f"{store.path} has no episodes, so there is nothing to publish")
        verify(store)
        name = _name(store, is_only=len(stores) == 1)
        name_from_outside(name, what=f"the split of {store.path}", error=RequestError)
        if not _SPLIT.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot be the name of a split on the Hub",
                hint="letters, digits and _ only: rename the folder",
            )
        if name in found:
            raise RequestError(
                f"{found[name].path} and {store.path} are both the split {name!r}",
                hint="give their folders different names, or merge them: `trajkit merge`",
            )
        found[name] = store
    return found


def training_split(splits: Iterable[str]) -> str:
    """The split that is learned: the one that says so, else the first."""
    names = list(splits)
    return _TRAIN if _TRAIN in names else names[0]


def _name(store: Store, *, is_only: bool) -> str:
    if store.manifest.split is not None:
        return store.manifest.split
    if not is_only:
        return store.path.name.replace("-", "_")
    n_eval = Dataset(store).where("purpose = 'eval'").n_episodes
    return _TEST if n_eval == store.manifest.counts.n_episodes else _TRAIN
