"""Open the training or validation data of a job: a store, or preference pairs."""

from __future__ import annotations

from pathlib import Path

from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leaks.leak import leak
from trajkit.curation.leaks.report import LeakReport
from trajkit.curation.pair_file import MANIFEST_NAME, Pairs, open_pairs
from trajkit.curation.preferences.leak import leak_of_pairs
from trajkit.errors import RequestError
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.layout import MANIFEST_NAME as STORE_FILE
from trajkit.training.origin import Origin, origin_of

Side = Dataset | Pairs


def open_side(path: Path, method: str, *, good: str | None = None) -> Side:
    """Open a store; for `dpo` pairs; for `kto` either.

    Raises:
        RequestError: It is a store, and the method learns from pairs; or `good` is given for pairs.
        StoreError: It is neither, or cannot be read.
    """
    if method == "sft":
        return open_dataset(path)
    if (path / MANIFEST_NAME).is_file():
        if good is not None:
            raise RequestError("pairs already have a better side", hint="leave --good out")
        return open_pairs(path)
    if method == "kto":
        return open_dataset(path)
    if not str(path).startswith(SAMPLE_PREFIX) and not (path / STORE_FILE).is_file():
        return open_pairs(path)  # its error says what is missing
    raise RequestError(
        f"{path} is a store, and {method} learns from pairs",
        hint=f"trajkit pairs {path} --margin 0.1 -o PAIRS, then --train PAIRS",
    )


def place_of(side: Side) -> Path:
    """Return the path of the data."""
    return side.path if isinstance(side, Pairs) else side.store.path


def digest_of(side: Side) -> str:
    """Return the digest of the data's content."""
    return side.manifest.digest if isinstance(side, Pairs) else side.store.manifest.digest


def origin_of_side(side: Side) -> Origin:
    """Return the functions and variants of the learned steps."""
    if isinstance(side, Pairs):
        return Origin(tuple(side.manifest.functions), tuple(side.manifest.variants))
    return origin_of(side)


def leak_of(train: Side, validation: Side | None) -> LeakReport:
    """Check the data for leaks and reserved worlds.

    Raises:
        RequestError: One side is pairs and the other a store.
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
