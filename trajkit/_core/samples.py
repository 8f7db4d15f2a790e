"""Find samples that come with trajkit: `sample:babyai` is a store, `sample:tiny-base` a model."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from trajkit.errors import RequestError

SAMPLE_PREFIX = "sample:"
"""Prefix of the names of samples."""

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "_data", _PACKAGE.parent / "data")  # in a wheel, in a checkout
_RECIPES = (_PACKAGE / "_data" / "recipes", _PACKAGE.parent / "recipes")
_SUFFIX = "-sample"
_MODEL_FILE = "config.json"


def samples(file: str) -> dict[str, Path]:
    """Return the sample folders that hold this file, by name."""
    return {
        path.name.removesuffix(_SUFFIX): path
        for folder in reversed(_FOLDERS)
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if (path / file).is_file()
    }


def recipe_folder() -> Path:
    """Return the folder of trajkit's recipes: YAML files, and folders with gateway configurations."""
    return next((folder for folder in _RECIPES if folder.is_dir()), _RECIPES[0])


def model_path(name: str) -> str:
    """Return the folder of the model `sample:NAME`, else the name itself: a folder or an id.

    Raises:
        RequestError: No sample model has this name.
    """
    if not name.startswith(SAMPLE_PREFIX):
        return name
    known = samples(_MODEL_FILE)
    if (wanted := name.removeprefix(SAMPLE_PREFIX)) not in known:
        listed = ", ".join(f"{SAMPLE_PREFIX}{other}" for other in sorted(known)) or "none is installed"
        raise RequestError(f"there is no sample model {wanted!r}", hint=f"models: {listed}")
    return str(known[wanted])


def pretrained(kind: Any, name: str, **options: Any) -> Any:
    """Load a model, a tokenizer or a configuration, and never run code that comes with it.

    Args:
        kind: The class that loads it, such as `transformers.AutoTokenizer`.
        name: As `model_path` takes it.
        **options: Of its `from_pretrained`.

    Raises:
        RequestError: No sample model has this name.
        OSError: There is no model, or its weights are a pickle that would run code.
        ValueError: It needs code of its own.
    """
    try:
        # without it, transformers would ask on a terminal whether to run the code
        return kind.from_pretrained(model_path(name), trust_remote_code=False, **options)
    except UnpicklingError as error:
        raise OSError("its weights are a pickle that runs code; safetensors are read") from error
