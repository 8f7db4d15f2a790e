"""The sources of `trajkit import` by name: trajkit's own, and those of installed packages."""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points

from trajkit.errors import RequestError
from trajkit.sources.source import FIELDS, Source

GROUP = "trajkit.sources"
"""The entry point group for sources of other packages."""

OWN: dict[str, str] = {
    "claude-code": "trajkit.sources.coding.claude_code",
    "codex": "trajkit.sources.coding.codex",
    "opencode": "trajkit.sources.coding.opencode",
    "pi": "trajkit.sources.coding.pi",
    "langfuse": "trajkit.sources.langfuse.connect",
    "otel": "trajkit.sources.otel.connect",
    "mlflow": "trajkit.sources.mlflow.connect",
    "phoenix": "trajkit.sources.phoenix.connect",
    "litellm": "trajkit.sources.litellm.connect",
    "swe-agent": "trajkit.sources.swe_agent.connect",
    "verifiers": "trajkit.sources.verifiers.connect",
    "openai-agents": "trajkit.sources.openai_agents.connect",
    "langsmith": "trajkit.sources.langsmith.connect",
    "helicone": "trajkit.sources.helicone.connect",
}
"""The module of each source of trajkit, by name; it has the source as `SOURCE`."""


@cache
def source_names() -> tuple[str, ...]:
    """The names of all sources, trajkit's own first."""
    others = (entry.name for entry in entry_points(group=GROUP))
    return (*OWN, *sorted(set(others) - OWN.keys()))


@cache
def source_named(name: str) -> Source:
    """Return the source with a name.

    Raises:
        RequestError: There is none, or the package that offers it does not offer a `Source`.
    """
    if name in OWN:
        source = importlib.import_module(OWN[name]).SOURCE
    else:
        entries = entry_points(group=GROUP, name=name)
        if not entries:
            raise RequestError(f"no source {name!r}", hint=f"known: {', '.join(source_names())}")
        (entry, *_) = entries
        try:
            source = entry.load()
        except (ImportError, AttributeError) as error:
            raise RequestError(f"the source {name!r} of {entry.value} cannot be loaded: {error}") from error
    if not isinstance(source, Source):
        raise RequestError(f"{name!r} is a {type(source).__name__} and not a trajkit.sources.source.Source")
    if unknown := source.fidelity.keys() - FIELDS.keys():
        raise RequestError(f"the source {name!r} describes unknown fields: {', '.join(sorted(unknown))}")
    return source


def is_personal(name: str) -> bool:
    """Whether a source reads local records of the user."""
    return name in source_names() and source_named(name).is_personal


def recognised(place: str) -> str | None:
    """Return the name of the source that recognises a path or URL; None if none does."""
    return next((name for name in source_names() if source_named(name).recognises(place)), None)
