"""Import optional packages; only this module does."""

from __future__ import annotations

import importlib
from types import ModuleType

from trajkit.errors import MissingExtra


def need(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or raise an error that names what to install.

    Args:
        module: Dotted name of the module to import.
        extra: The extra of trajkit that installs it.

    Raises:
        MissingExtra: The package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # the package is installed, but one of its own imports is not: another problem
        raise MissingExtra(
            f"this needs the package {top}, which is not installed",
            hint=f"pip install 'trajkit[{extra}]'",
        ) from error
