"""Read a dataset from the Hugging Face Hub into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trajkit.commands.place import Many, Place, many, remember_store

if TYPE_CHECKING:
    from trajkit.publishing.pull import Pulled


def pull(
    repository: str,
    *,
    output: Place,
    split: Many = (),
    config: str | None = None,
    from_: str | None = None,
    skip_bad: bool = False,
    success: str | None = None,
) -> Pulled:
    """Read a dataset from the Hugging Face Hub; what `push` put there comes back with the same digest.

    Args:
        repository: `org/name`, or `org/name@revision`.
        output: The store to write; a folder with a store per split where there are several.
        split: Only these; none for all.
        config: Of a dataset of others: which part of it.
        from_: Of a dataset of others: what it holds, as in `import_`.
        skip_bad: Of a dataset of others: leave out what cannot be read.
        success: Of a dataset of others: when an episode is a success.

    Raises:
        ServiceError: The Hub has no such dataset, or does not show it.
        DataError: It cannot be read.
        StoreError: `output` exists.
    """
    from trajkit.publishing.hub import Hub, found_token
    from trajkit.publishing.pull import pull as read
    from trajkit.sources.files.importing import Wish

    name, _, revision = repository.partition("@")
    pulled = read(
        Hub(found_token()),
        name,
        Path(output),
        revision=revision or None,
        configuration=config,
        splits=many(split),
        wish=Wish(format=from_, skip_bad=skip_bad, success=success),
        on_progress=lambda what, n_done, n_total: None,
    )
    remember_store(pulled.stores[0].path)
    return pulled
