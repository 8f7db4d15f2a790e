"""Options of commands that work shard by shard: what runs the shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from trajkit.commands.options.types import Option
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.engines.engine import Engine, OnProgress


class EngineOptions(TypedDict, total=False):
    """What runs the shards of a command."""

    on: Annotated[str | None, Option(metavar="ENGINE")]
    """Cut the work into shards and run them on local (processes of this machine), ray, ray://HOST:PORT or
    slurm: the result is the same. Default: this process, or local with --workers."""
    workers: Annotated[int | None, Option(least=1, metavar="N")]
    """Most shards at a time. Default: one per core, or as many as the cluster has room for."""


def engine_of(
    given: Mapping[str, Any],
    on_progress: OnProgress = lambda what, done, total: None,
    *,
    has_shard: bool = False,
) -> Engine | None:
    """Return the engine that the options name; None for this process.

    Args:
        given: The options by name.
        on_progress: Gets the progress in shards.
        has_shard: Whether the command names one shard.

    Raises:
        RequestError: There is no such engine, or a shard is named as well.
    """
    from trajkit.engines.engine import engine_named

    engine = engine_named(given["on"], given["workers"], on_progress=on_progress)
    if engine is not None and has_shard:
        raise RequestError("--shard is one part, and --on runs all of them: leave one out")
    return engine
