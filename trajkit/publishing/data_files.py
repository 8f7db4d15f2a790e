"""Which files of other people's datasets are read: those that the card names, else every file of data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from trajkit.errors import RequestError

DATA = (".parquet", ".jsonl", ".ndjson", ".json")
"""How the names of files of data end."""
_NO_DATA = re.compile(r"(^|/)(dataset_infos?|state|config|\.[^/]*)\.json$|^trajkit\.json$")


def data_files(
    files: Iterable[str], card: dict[str, Any], configuration: str | None, splits: Sequence[str]
) -> list[str]:
    """The files of a configuration, as the card's `configs` name them; without those every file of data.

    Args:
        files: The repository's.
        card: Metadata of its card.
        configuration: Which; None for the default.
        splits: Those to read; none for all.

    Raises:
        RequestError: There is no such configuration or split.
    """
    data = sorted(path for path in files if path.endswith(DATA) and not _NO_DATA.search(path))
    if not data:
        return []
    configs = [each for each in card.get("configs") or () if isinstance(each, dict)]
    if not configs:
        if configuration is not None:
            raise RequestError(f"no configuration {configuration!r}", hint="the dataset names none")
        chosen = [path for path in data if not splits or _is_of_split(path, splits)]
        if data and not chosen:
            raise RequestError(f"no file is named for {', '.join(splits)}", hint=f"files: {_some(data)}")
        return chosen
    by_name = {_text(each.get("config_name")): each for each in configs}
    if configuration is not None and configuration not in by_name:
        raise RequestError(f"no configuration {configuration!r}", hint=f"there are: {', '.join(by_name)}")
    default = next((name for name, each in by_name.items() if each.get("default")), None)
    name = configuration or default or ("default" if "default" in by_name else next(iter(by_name)))
    patterns = dict(_patterns(by_name[name].get("data_files")))
    if unknown := [split for split in splits if split not in patterns]:
        raise RequestError(f"{name} has no split {unknown[0]!r}", hint=f"there are: {', '.join(patterns)}")
    wanted = [each for split, many in patterns.items() if not splits or split in splits for each in many]
    return [path for path in data if any(_fits(path, pattern) for pattern in wanted)]


def _patterns(said: Any) -> Iterable[tuple[str, list[str]]]:
    """Split and its patterns; `data_files` may be a pattern, a list of them, or one per split."""
    if isinstance(said, str):
        yield "train", [said]
        return
    plain: list[str] = []
    for each in said if isinstance(said, list) else ():
        if isinstance(each, dict):
            path = each.get("path")
            paths = path if isinstance(path, list) else [path]
            yield _text(each.get("split", "train")), [one for one in paths if isinstance(one, str)]
        elif isinstance(each, str):
            plain.append(each)
    if plain:
        yield "train", plain


def _text(value: Any) -> str:
    """A name on a card as text: of a list nothing is spelled out, as YAML's aliases make endless ones."""
    return str(value) if isinstance(value, str | int | float | bool) else ""


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))


def _is_of_split(path: str, splits: Sequence[str]) -> bool:
    words = re.split(r"[^A-Za-z0-9]+", path.rpartition(".")[0])
    return any(split in words for split in splits)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
