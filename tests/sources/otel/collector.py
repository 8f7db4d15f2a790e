"""The tables of the collector's exporter for ClickHouse, and rows as it writes them.

The columns and their types are those of its `traces_table.sql`, `traces_json_table.sql` and `logs_table.sql`
(opentelemetry-collector-contrib, exporter/clickhouseexporter, 0.140).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_TRACES = """CREATE TABLE otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes {map}, ScopeName String, ScopeVersion String, SpanAttributes {map}, Duration UInt64,
    StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes {map}),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes {map}),
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
) ENGINE = MergeTree() PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)"""
_LOGS = """CREATE TABLE otel_logs (
    Timestamp DateTime64(9), TimestampTime DateTime DEFAULT toDateTime(Timestamp), TraceId String,
    SpanId String, TraceFlags UInt8, SeverityText LowCardinality(String), SeverityNumber UInt8,
    ServiceName LowCardinality(String), Body String, ResourceSchemaUrl LowCardinality(String),
    ResourceAttributes {map}, ScopeSchemaUrl LowCardinality(String), ScopeName String,
    ScopeVersion LowCardinality(String), ScopeAttributes {map}, LogAttributes {map}{event}
) ENGINE = MergeTree() PARTITION BY toDate(TimestampTime) ORDER BY (ServiceName, TimestampTime, Timestamp)"""
MAP = "Map(LowCardinality(String), String)"


def create(client: Any, *, is_json: bool = False) -> None:
    """Make the tables: with the maps that are the default, or with columns of the type JSON."""
    kind = "JSON" if is_json else MAP
    client.command("DROP TABLE IF EXISTS otel_traces")
    client.command("DROP TABLE IF EXISTS otel_logs")
    client.command(_TRACES.format(map=kind))
    client.command(_LOGS.format(map=kind, event=", EventName String" if is_json else ""))


def insert(client: Any, requests: list[dict[str, Any]]) -> None:
    """Write the spans and log records of requests."""
    spans = [json.dumps(row) for request in requests for row in _spans(request)]
    logs = [json.dumps(row) for request in requests for row in _logs(request)]
    for table, rows in (("otel_traces", spans), ("otel_logs", logs)):
        if rows:
            client.command(f"INSERT INTO {table} FORMAT JSONEachRow", data="\n".join(rows))


def _spans(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in request.get("resourceSpans", ()):
        resource = _texts(group["resource"]["attributes"])
        for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
            begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            events = span.get("events", ())
            code = span.get("status", {}).get("code", 0)
            yield {
                "Timestamp": _at(begin),
                "TraceId": span["traceId"],
                "SpanId": span["spanId"],
                "ParentSpanId": span.get("parentSpanId", ""),
                "SpanName": span["name"],
                "ServiceName": resource.get("service.name", ""),
                "ResourceAttributes": resource,
                "SpanAttributes": _texts(span.get("attributes", ())),
                "Duration": end - begin,
                "StatusCode": ("Unset", "Ok", "Error")[code],
                "StatusMessage": span.get("status", {}).get("message", ""),
                "Events.Timestamp": [_at(int(one["timeUnixNano"])) for one in events],
                "Events.Name": [one["name"] for one in events],
                "Events.Attributes": [_texts(one.get("attributes", ())) for one in events],
            }


def _logs(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in request.get("resourceLogs", ()):
        for record in (record for scope in group["scopeLogs"] for record in scope["logRecords"]):
            name = record.get("eventName", "")
            yield {
                "Timestamp": _at(int(record["timeUnixNano"])),
                "TraceId": record.get("traceId", ""),
                "SpanId": record.get("spanId", ""),
                "Body": _text(record["body"]) if "body" in record else "",
                "LogAttributes": {**_texts(record.get("attributes", ())), "event.name": name},
            }


def _at(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09d}"


def _texts(attributes: Any) -> dict[str, str]:
    return {one["key"]: _text(one["value"]) for one in attributes}


def _text(value: dict[str, Any]) -> str:
    found = plain(value)
    return found if isinstance(found, str) else json.dumps(found)


def plain(value: dict[str, Any]) -> Any:
    """A value of OTLP/JSON as one of JSON."""
    ((kind, inner),) = value.items()
    match kind:
        case "arrayValue":
            return [plain(one) for one in inner.get("values", ())]
        case "kvlistValue":
            return {one["key"]: plain(one["value"]) for one in inner.get("values", ())}
        case "intValue":
            return int(inner)
    return inner


def coded(value: Any) -> dict[str, Any]:
    """A value of JSON as OTLP/JSON has it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [coded(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes_of(value)}}
    return {"stringValue": value}


def attributes_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP/JSON has them."""
    return [{"key": name, "value": coded(value)} for name, value in values.items()]
