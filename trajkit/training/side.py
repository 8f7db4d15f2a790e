"""What a job learns from or is measured by: a store, or preference pairs."""

from __future__ import annotations

from pathlib import Path

from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leak import leak
from trajkit.curation.leak_report import LeakReport
from trajkit.curation.pair_file import MANIFEST_NAME, Pairs, open_pairs
from trajkit.curation.pair_leak import leak_of_pairs
from trajkit.errors import RequestError
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.layout import MANIFEST_NAME as STORE_FILE
from trajkit.training.origin import Origin, origin_of

Side = Dataset | Pairs


def open_side(path: Path, method: str, *, good: str | None = None) -> Side:
    """The store, for `dpo` the pairs, for `kto` either.

    Raises:
        RequestError: It is a store, and the method learns from pairs; or `good` is given for pairs.
        StoreError: It is neither, or cannot be read.
    """
    if method == "sft":
        return open_dataset(path)
    if (path / MANIFEST_NAME).is_file():
        if good is not None:
            raise RequestError("of pairs it is known which side is good", hint="leave --good out")
        return open_pairs(path)
    if method == "kto":
        return open_dataset(path)
    if not str(path).startswith(SAMPLE_PREFIX) and not (path / STORE_FILE).is_file():
        return open_pairs(path)  # which says what is missing
    raise RequestError(
        f"{path} is a store, and {method} learns from pairs",
        hint=f"trajkit pairs {path} --margin 0.1 -o PAIRS, then --train PAIRS",
    )


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
    """What the two have in common, and what is reserved.

    Raises:
        RequestError: One is pairs and the other a store.
    """
    if isinstance(train, Pairs) and not isinstance(validation, Dataset):
        return leak_of_pairs(train, validation)
    if isinstance(train, Dataset) and not isinstance(validation, Pairs):
        return leak(train.store.path, None if validation is None else validation.store.path)
    assert validation is not None
    pairs, store = (train, validation) if isinstance(train, Pairs) else (validation, train)
    raise RequestError(
        f"{place_of(pairs)} is pairs, and {place_of(store)} is a store: they cannot be compared",
        hint="--train and --val are both pairs, or both stores",
    )
