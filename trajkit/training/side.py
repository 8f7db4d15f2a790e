"""What a job learns from or is measured by: a store, or preference pairs."""

from __future__ import annotations

from pathlib import Path

from trajkit.curation.leak import leak
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.pair_file import Pairs, open_pairs
from trajkit.curation.pair_leak import leak_of_pairs
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.training.origin import Origin, origin_of

Side = Dataset | Pairs


def open_side(path: Path, method: str) -> Side:
    """The store, or for `dpo` the pairs.

    Raises:
        StoreError: It is the other, or cannot be read.
    """
    return open_pairs(path) if method == "dpo" else open_dataset(path)


def place_of(side: Side) -> Path:
    """Where it is."""
    return side.path if isinstance(side, Pairs) else side.store.path


def digest_of(side: Side) -> str:
    """Of its content."""
    return side.manifest.digest if isinstance(side, Pairs) else side.store.manifest.digest


def origin_of_side(side: Side) -> Origin:
    """The functions and variants that its learned steps are of."""
    if isinstance(side, Pairs):
        return Origin(tuple(side.manifest.functions), tuple(side.manifest.variants))
    return origin_of(side)


def leak_of(train: Side, validation: Side | None) -> LeakReport:
    """What the two have in common, and what is reserved."""
    if isinstance(train, Pairs):
        assert validation is None or isinstance(validation, Pairs)
        return leak_of_pairs(train, validation)
    assert validation is None or isinstance(validation, Dataset)
    return leak(train.store.path, None if validation is None else validation.store.path)
