"""Modules that every room uses: lazy imports, files, settings, ids, seeds and secrets."""

__all__ = [
    "address",
    "division",
    "files",
    "ids",
    "lazy",
    "lock",
    "memo",
    "output",
    "outside",
    "process",
    "samples",
    "secrets",
    "seeds",
    "sending",
    "settings",
    "times",
    "user_state",
]
