"""Packages that have the name of a verb: `trajkit.rollout` holds code, and `trajkit.rollout(...)` plays."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


class _VerbPackage(ModuleType):
    """A package that can be called: Python puts a package that was imported in the place of the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _verb(self)(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """Of the verb, for `help` and notebooks."""
        return inspect.signature(_verb(self))


def make_callable(package: str, module: str) -> None:
    """Let a package be called as the verb of its name.

    Args:
        package: Its name.
        module: Where the verb is; imported when it is called, because it stands above the package.
    """
    found = sys.modules[package]
    found.__class__ = _VerbPackage
    found.__dict__["_verb_module"] = module


def _verb(package: ModuleType) -> Any:
    name = package.__name__.rpartition(".")[2]
    return getattr(importlib.import_module(package.__dict__["_verb_module"]), name)
