"""Find the model or adapter of a name, and the base model of an adapter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.lazy import need
from trajkit._core.samples import SAMPLE_PREFIX, model_path
from trajkit.errors import DataError, RequestError

ADAPTER_FILE = "adapter_config.json"
_WEIGHTS = ("*.safetensors", "*.bin")
_READ = 2**20


class Located(NamedTuple):
    """A model by its name."""

    model: str
    """Folder or id of the model or the adapter."""
    base: str | None
    """Folder or id of the base model; None when unknown."""
    is_adapter: bool
    """Whether it is an adapter, which cannot run without its base model."""


def located(name: str, base: str | None = None) -> Located:
    """Find the model or adapter of a name.

    Args:
        name: Folder or id of an adapter or a model, or `sample:tiny-base`.
        base: The base model; None for the one in the adapter's settings.

    Raises:
        RequestError: The folder is neither, or the adapter's settings name no base model.
        DataError: The adapter's settings are damaged.
        MissingExtra: huggingface_hub is not installed, and it is an id.
    """
    settings = adapter_settings(name)
    if settings is None:
        if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
            raise RequestError(
                f"{name} is neither an adapter nor a model",
                hint=f"a folder with {ADAPTER_FILE} or config.json, a job's name, or an id",
            )
        return Located(name, base, is_adapter=False)
    base = base or settings.get("base_model_name_or_path")
    if not base:
        raise RequestError(f"the adapter {name} does not name its base model", hint="--base MODEL")
    return Located(name, base, is_adapter=True)


def fingerprint(name: str) -> str:
    """Return an identifier of a model's weights: a hash for a folder, the id itself for an id.

    Of large files, only the beginning, the end and the size are hashed.
    """
    folder = Path(model_path(name))
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)}):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        for part in _ends(path):
            digest.update(part)
    return digest.hexdigest()


def _ends(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.read(_READ)
        if path.stat().st_size > _READ:
            file.seek(max(_READ, path.stat().st_size - _READ))
            yield file.read(_READ)


def adapter_settings(name: str) -> dict[str, Any] | None:
    """Return the settings of an adapter by its folder or id; None when it is not one."""
    path = Path(name)
    if path.is_dir():
        file = path / ADAPTER_FILE
        return _read(file) if file.is_file() else None
    if name.startswith(SAMPLE_PREFIX):
        return None
    hub = need("huggingface_hub", extra="local")
    try:
        file = Path(hub.hf_hub_download(name, ADAPTER_FILE))
    except (OSError, ValueError):  # no such id, no network, or a model that is not an adapter
        return None
    return _read(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is damaged: {error}") from error
    return found
