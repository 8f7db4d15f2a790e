"""Check a value against the parts of JSON schema that answers of agents need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

_KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def fits(value: JsonValue, schema: Mapping[str, Any]) -> bool:
    """Check whether a value fits a schema.

    Supported are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf`,
    `oneOf` and `allOf`; other keywords, such as lengths and patterns, are ignored.
    """
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, str(kind)) for kind in _listed(kinds)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, dict) and not _fits_object(value, schema):
        return False
    if isinstance(value, list) and not all(_may_be(each, schema.get("items", True)) for each in value):
        return False
    return _fits_parts(value, schema)


def _fits_object(value: Mapping[str, JsonValue], schema: Mapping[str, Any]) -> bool:
    declared = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, each in value.items():
        if name in declared:
            if not _may_be(each, declared[name]):
                return False
        elif not _may_be(each, others):
            return False
    return True


def _may_be(value: JsonValue, schema: Any) -> bool:
    """Check a value against a schema, which may also be true, for anything, or false, for nothing."""
    return fits(value, schema) if isinstance(schema, Mapping) else schema is not False


def _fits_parts(value: JsonValue, schema: Mapping[str, Any]) -> bool:
    n_fitting = {name: [_may_be(value, part) for part in schema.get(name, ())] for name in _PARTS}
    return (
        all(n_fitting["allOf"])
        and (not n_fitting["anyOf"] or any(n_fitting["anyOf"]))
        and (not n_fitting["oneOf"] or sum(n_fitting["oneOf"]) == 1)
    )


_PARTS = ("allOf", "anyOf", "oneOf")


def _is(value: JsonValue, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, object))


def _listed(kinds: Any) -> list[Any]:
    return list(kinds) if isinstance(kinds, list) else [kinds]
