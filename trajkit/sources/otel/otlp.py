"""Read OTLP, the protocol of OpenTelemetry: a request with spans or log records, as JSON or protobuf.

https://opentelemetry.io/docs/specs/otlp/ defines both forms. A file of the collector's file exporter has a
request in each line, or (its format `proto`) requests with their lengths before them.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import JsonValue

from trajkit._core.lazy import need
from trajkit.formats.reading.document import BadDocument, object_at, objects_at, part_of, shown
from trajkit.schema.base import JsonObject

TRACES = "resourceSpans"
LOGS = "resourceLogs"
METRICS = "resourceMetrics"
_SERVICES = {
    TRACES: ("opentelemetry.proto.collector.trace.v1.trace_service_pb2", "ExportTraceServiceRequest"),
    LOGS: ("opentelemetry.proto.collector.logs.v1.logs_service_pb2", "ExportLogsServiceRequest"),
}
_IDS = ("traceId", "spanId", "parentSpanId")
_OF_GEN_AI = "gen_ai."


class Row(NamedTuple):
    """A span, or an event of a log."""

    trace_id: str
    """Empty for an event outside of a trace."""
    part: str
    """`span` or `event`."""
    value: JsonObject
    """As JSON; its times are nanoseconds since 1970."""


def rows_of(request: Any) -> Iterator[Row | BadDocument]:
    """Yield the spans of a request, and its events about models; a problem replaces an invalid one.

    Invalid items are removed from the request.

    Raises:
        BadDocument: It is not a request.
    """
    value = object_at(request, "")
    for kind, scopes, name, read in (
        (TRACES, ("scopeSpans", "instrumentationLibrarySpans"), "spans", _span),
        (LOGS, ("scopeLogs",), "logRecords", _event),
    ):
        for at, one in enumerate(objects_at(value.get(kind), kind)):
            where = f"{kind}.{at}"
            resource = attributes_of(part_of(one, "resource", where).get("attributes"), f"{where}.resource")
            for scope in (scope for each in scopes for scope in objects_at(one.get(each), where)):
                values = scope.get(name)
                if not isinstance(values, list | None):
                    raise BadDocument("not a list", f"{where}.{name}", shown(values))
                good = []
                for number, item in enumerate(values or ()):
                    place = f"{where}.{name}.{number}"
                    try:
                        row = read(object_at(item, place), resource, place)
                    except BadDocument as error:
                        yield error
                        continue
                    good.append(item)
                    if row is not None:
                        yield row
                if values:
                    values[:] = good


def is_request(value: Any) -> bool:
    """Whether a JSON value is an OTLP request."""
    return isinstance(value, dict) and bool(value.keys() & {TRACES, LOGS, METRICS})


def json_of_protobuf(data: bytes, kind: str) -> JsonObject:
    """Return a request as OTLP/JSON.

    Args:
        data: The request as protobuf.
        kind: `TRACES` or `LOGS`.

    Raises:
        BadDocument: It is not such a request.
        MissingExtra: opentelemetry-proto is not installed.
    """
    module, name = _SERVICES[kind]
    message = getattr(need(module, extra="otel"), name)
    try:
        request = message.FromString(data)
    except need("google.protobuf.message", extra="otel").DecodeError as error:
        raise BadDocument("not OTLP as protobuf", value=str(error)) from None
    value: JsonObject = need("google.protobuf.json_format", extra="otel").MessageToDict(
        request, use_integers_for_enums=True
    )
    _spell_ids(value)
    return value


def requests_of_protobuf(data: bytes) -> Iterator[JsonObject]:
    """Yield the requests of a file: one, or several with their lengths before them (4 bytes, big-endian).

    Raises:
        BadDocument: It has something else.
        MissingExtra: opentelemetry-proto is not installed.
    """
    places: list[tuple[int, int]] = []
    at = 0
    while at + 4 <= len(data):
        n_bytes = int.from_bytes(data[at : at + 4], "big")
        places.append((at + 4, at + 4 + n_bytes))
        at += 4 + n_bytes
    # one request if the lengths do not reach the end
    for begin, end in places if places and at == len(data) else [(0, len(data))]:
        yield json_of_protobuf(data[begin:end], TRACES)


def _spell_ids(value: Any) -> None:
    """Convert ids to hexadecimal, as in OTLP/JSON: protobuf's own JSON has base64."""
    match value:
        case list():
            for item in value:
                _spell_ids(item)
        case dict():
            for name, item in value.items():
                if name in _IDS and isinstance(item, str):
                    value[name] = base64.b64decode(item).hex()
                elif name not in ("attributes", "body"):
                    _spell_ids(item)


def _span(item: JsonObject, resource: JsonObject, where: str) -> Row:
    trace_id = _id(item.get("traceId"), f"{where}.traceId")
    status = part_of(item, "status", where)
    code = status.get("code")
    dropped = [item.get(name) for name in ("droppedAttributesCount", "droppedEventsCount")]
    events: list[JsonValue] = [
        [
            str(one.get("name")),
            _time(one.get("timeUnixNano"), where),
            attributes_of(one.get("attributes"), where),
        ]
        for one in objects_at(item.get("events"), f"{where}.events")
    ]
    return Row(
        trace_id,
        "span",
        {
            "span": _id(item.get("spanId"), f"{where}.spanId"),
            "parent": _id(item["parentSpanId"], f"{where}.parentSpanId")
            if item.get("parentSpanId")
            else None,
            "name": str(item.get("name") or ""),
            "begin": _time(item.get("startTimeUnixNano"), f"{where}.startTimeUnixNano"),
            "end": _time(item.get("endTimeUnixNano"), f"{where}.endTimeUnixNano"),
            "attributes": attributes_of(item.get("attributes"), f"{where}.attributes"),
            "events": events,
            "is_error": code in (2, "2", "STATUS_CODE_ERROR"),
            "status": str(status.get("message") or ""),
            "resource": resource,
            "n_dropped": sum(one for one in dropped if isinstance(one, int)),
        },
    )


def _event(item: JsonObject, resource: JsonObject, where: str) -> Row | None:
    """Return an event about a model; None for another log record."""
    attributes = attributes_of(item.get("attributes"), f"{where}.attributes")
    name = item.get("eventName") or attributes.get("event.name")
    if not isinstance(name, str) or not name.startswith(_OF_GEN_AI):
        return None
    body = _value(item.get("body"), f"{where}.body")
    trace_id = item.get("traceId")
    return Row(
        _id(trace_id, f"{where}.traceId") if trace_id else "",
        "event",
        {
            "span": _id(item["spanId"], f"{where}.spanId") if item.get("spanId") else None,
            "name": name,
            "at": _time(item.get("timeUnixNano") or item.get("observedTimeUnixNano"), where),
            "attributes": with_body(attributes, body),
            "resource": resource,
        },
    )


def with_body(attributes: JsonObject, body: Any) -> JsonObject:
    """Return the attributes of an event and the fields of its body."""
    if isinstance(body, dict):
        return {**attributes, **body}
    return attributes if body in (None, "") else {"content": body, **attributes}


def attributes_of(values: Any, where: str) -> JsonObject:
    """Return the attributes in an OTLP list.

    Raises:
        BadDocument: It is not a list of attributes, or a value does not have its type.
    """
    return {str(one.get("key")): _value(one.get("value"), where) for one in objects_at(values, where)}


def _value(value: Any, where: str) -> Any:
    """Return an OTLP value as a JSON value."""
    if value is None:
        return None
    for kind, inner in object_at(value, where).items():
        match kind.replace("_value", "Value"):  # MLflow writes `int_value`
            case "intValue":
                return _whole(inner, where)
            case "doubleValue":
                return _double(inner, where)
            case "arrayValue":
                return [
                    _value(one, where) for one in objects_at(object_at(inner, where).get("values"), where)
                ]
            case "kvlistValue":
                return attributes_of(object_at(inner, where).get("values"), where)
            case "stringValue" | "boolValue" | "bytesValue":
                return inner
    return None


def _double(value: Any, where: str) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadDocument("not a number", where, shown(value)) from None
    return number if math.isfinite(number) else str(number)


def _whole(value: Any, where: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadDocument("not a whole number", where, shown(value)) from None


def _time(value: Any, where: str) -> int | None:
    """Return nanoseconds since 1970; None for 0, which means an unknown time."""
    return None if value is None else _whole(value, where) or None


def _id(value: Any, where: str) -> str:
    """Return an id in hexadecimal; some programs write it as base64."""
    text = value if isinstance(value, str) else ""
    try:
        if text and len(text) % 2 == 0:
            return bytes.fromhex(text).hex()
    except ValueError:
        pass
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) not in (8, 16):
        raise BadDocument("not an id", where, shown(value))
    return decoded.hex()
