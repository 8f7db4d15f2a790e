"""The Parquet that the Hub itself makes of a dataset: for those whose own files are not read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trajkit.errors import RequestError
from trajkit.publishing.fault import HubFault
from trajkit.publishing.hub import Hub
from trajkit.publishing.remote import Remote

BRANCH = "refs/convert/parquet"
"""Where the Hub keeps it, as `CONFIGURATION/SPLIT/0000.parquet`."""
_PARTIAL = "partial-"


def converted(hub: Hub, repository: str) -> Remote | None:
    """The branch with what the Hub made of a dataset; None where it made nothing.

    Raises:
        HubFault: The Hub does not answer.
    """
    try:
        return hub.look(repository, "dataset", BRANCH)
    except HubFault as fault:
        if fault.is_absent:
            return None
        raise


def converted_files(files: Iterable[str], configuration: str | None, splits: Sequence[str]) -> list[str]:
    """The files of a configuration on that branch.

    Args:
        files: All files of the branch.
        configuration: Which; None for `default`, else the first by name.
        splits: Those to read; none for all.

    Raises:
        RequestError: There is no such configuration or split, or the Hub has only a part of one that was not
            asked for by name.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(files):
        config, _, rest = path.partition("/")
        split, _, name = rest.partition("/")
        if name.endswith(".parquet"):
            found.setdefault(config, {}).setdefault(split, []).append(path)
    if not found:
        return []
    chosen = configuration or ("default" if "default" in found else next(iter(found)))
    if chosen not in found:
        raise RequestError(f"no configuration {chosen!r}", hint=f"there are: {', '.join(found)}")
    by_split = found[chosen]
    if unknown := [split for split in splits if split not in by_split]:
        raise RequestError(f"{chosen} has no split {unknown[0]!r}", hint=f"there are: {', '.join(by_split)}")
    wanted = {split: names for split, names in by_split.items() if not splits or split in splits}
    part = next((split for split in wanted if split.startswith(_PARTIAL) and split not in splits), None)
    if part is not None:
        raise RequestError(
            f"of {chosen} the Hub has only a beginning as Parquet: {part}",
            hint=f"--split {part} reads that much",
        )
    return [name for names in wanted.values() for name in names]
