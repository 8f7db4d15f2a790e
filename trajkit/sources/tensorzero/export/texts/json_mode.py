"""Restore the line that a gateway put before the system message in JSON mode; only `raw_request` has it.

OpenAI-compatible servers refuse `json_mode = "on"` unless the prompt mentions JSON, so the gateway adds a
line where no message does. A store keeps the prompt as it was sent, with that line.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "Respond using JSON."
"""The line; a system message follows after an empty one."""

ON_IN_CONFIG = 'json_mode = "on"'
"""How the configuration of a snapshot sets JSON mode for a variant."""

ON_IN_PARAMETERS = '"json_mode":"on"'
"""How the parameters of an inference set JSON mode."""

WIRE_PATTERN = (
    '"role": ?"(system|developer)", ?"content": ?([[][{]"type": ?"(input_)?text", ?"text": ?)?"'
    f"{PREFIX[:-1]}[.]"
)
"""Finds it in `raw_request`: a regular expression for ClickHouse, Postgres and DuckDB, without a backslash.

Inside a JSON text quotes are escaped, so that a message which only quotes such a request is not found.
"""

# Types of model providers whose requests get the line. The others have a JSON mode of their own kind, or
# none.
_PROVIDERS = frozenset(
    {"azure", "deepseek", "groq", "hyperbolic", "openai", "openrouter", "sglang", "tgi", "xai"}
)


def is_prefixed(provider_type: str | None, *, json_mode: str | None) -> bool:
    """Whether a gateway may put the line before prompts for such a provider."""
    return json_mode == "on" and provider_type in _PROVIDERS


def with_prefix(system: str | None, texts: Iterable[str]) -> str:
    """The system message as it goes over the wire in JSON mode.

    Args:
        system: As it was rendered; None when there is none.
        texts: Every text of the messages after it.
    """
    if system is None:
        return PREFIX
    if any("json" in text.lower() for text in (system, *texts)):
        return system
    return f"{PREFIX}\n\n{system}"


def wire_system(matches: str, is_prompt_there: str) -> str:
    """SQL for the system message of a row of `ModelInference` as it went over the wire.

    Args:
        matches: A condition in the database's own SQL: `raw_request` matches `WIRE_PATTERN`.
        is_prompt_there: Another: the row has its prompt.
    """
    return (
        f"CASE WHEN {is_prompt_there} AND {matches}"
        f" AND substring(coalesce(system, ''), 1, {len(PREFIX)}) <> '{PREFIX}'"
        f" THEN CASE WHEN system IS NULL THEN '{PREFIX}' ELSE concat('{PREFIX}\n\n', system) END"
        " ELSE system END"
    )
