"""What Langfuse's server makes of what its SDK sends: tables, files of its export, answers of its API.

The conversion of spans to rows is ours, after `OtelIngestionProcessor.ts`; the tables are Langfuse's own, the
files those of its reference of export fields, the answers those that its SDK reads (`record.py` asks it).
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

PROJECT = "project-1"
HERE = Path(__file__).parent
Tables = dict[str, list[dict[str, Any]]]
_USAGE = {"prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total"}
_PAGE = 60


def tables_of(sent: Sequence[dict[str, Any]]) -> Tables:
    """The rows of version 3 that Langfuse's server makes of what its SDK sent."""
    traces: dict[str, dict[str, Any]] = {}
    observations = []
    for request in sent:
        for resource in request.get("otlp", {}).get("resourceSpans", ()):
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    said = {one["key"]: _value(one["value"]) for one in span["attributes"]}
                    row = _observation(span, said)
                    observations.append(row)
                    trace = traces.setdefault(row["trace_id"], _trace(row, said))
                    if "parentSpanId" not in span:
                        trace["name"] = row["name"]
                    trace["timestamp"] = min(trace["timestamp"], row["start_time"])
    bodies = [request["body"] for request in sent if "body" in request]
    scores = [_score(one) for body in bodies for one in (body if isinstance(body, list) else [body])]
    return {"traces": list(traces.values()), "observations": observations, "scores": scores}


def _observation(span: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    def own(name: str) -> Any:
        return said.get(f"langfuse.observation.{name}")

    usage = {
        _USAGE.get(k, k): v for k, v in json.loads(own("usage_details") or "{}").items() if v is not None
    }
    cost = json.loads(own("cost_details") or "{}")
    if cost:
        cost.setdefault("total", sum(cost.values()))
    asked = json.loads(own("input")) if str(own("input")).startswith("{") else {}
    tools = {
        one["function"]["name"]: json.dumps(
            {name: one["function"][name] for name in ("description", "parameters")}
        )
        for one in asked.get("tools", ())
    }
    return {
        "id": _hex(span["spanId"]),
        "trace_id": _hex(span["traceId"]),
        "project_id": PROJECT,
        "environment": said.get("langfuse.environment", "default"),
        "type": str(own("type")).upper(),
        "parent_observation_id": _hex(span["parentSpanId"]) if "parentSpanId" in span else None,
        "start_time": _time(int(span["startTimeUnixNano"])),
        "end_time": _time(int(span["endTimeUnixNano"])),
        "name": span["name"],
        "metadata": _metadata(said, "langfuse.observation.metadata"),
        "level": own("level") or "DEFAULT",
        "status_message": own("status_message"),
        "version": said.get("langfuse.version"),
        "input": own("input"),
        "output": own("output"),
        "provided_model_name": own("model.name"),
        "model_parameters": own("model.parameters"),
        "usage_details": usage,
        "cost_details": cost,
        "total_cost": cost.get("total"),
        "completion_start_time": None,
        "prompt_name": own("prompt.name"),
        "prompt_version": own("prompt.version"),
        "tool_definitions": tools,
        "event_ts": _time(int(span["endTimeUnixNano"])),
        "is_deleted": 0,
    }


def _trace(row: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["trace_id"],
        "timestamp": row["start_time"],
        "name": row["name"],
        "user_id": said.get("user.id"),
        "metadata": _metadata(said, "langfuse.trace.metadata"),
        "release": said.get("langfuse.release"),
        "version": row["version"],
        "project_id": PROJECT,
        "environment": row["environment"],
        "public": False,
        "bookmarked": False,
        "tags": said.get("langfuse.trace.tags", []),
        "session_id": said.get("session.id"),
        "event_ts": row["event_ts"],
        "is_deleted": 0,
    }


def _metadata(said: dict[str, Any], prefix: str) -> dict[str, str]:
    found = {
        name.removeprefix(f"{prefix}."): str(v) for name, v in said.items() if name.startswith(f"{prefix}.")
    }
    return {name: json.loads(v) if v.startswith('"') else v for name, v in found.items()}


def _score(body: dict[str, Any]) -> dict[str, Any]:
    kind = body.get("dataType") or ("CATEGORICAL" if isinstance(body["value"], str) else "NUMERIC")
    at = (
        datetime.fromisoformat(body["timestamp"])
        if "timestamp" in body
        else datetime(2026, 11, 25, tzinfo=UTC)
    )
    return {
        "id": body["id"],
        "timestamp": f"{at.replace(tzinfo=None):%Y-%m-%d %H:%M:%S.%f}"[:23],
        "project_id": PROJECT,
        "environment": "default",
        "trace_id": body.get("traceId"),
        "session_id": body.get("sessionId"),
        "dataset_run_id": None,
        "observation_id": body.get("observationId"),
        "name": body["name"],
        "value": 0 if kind == "CATEGORICAL" else float(body["value"]),
        "source": "API",
        "comment": body.get("comment"),
        "author_user_id": None,
        "config_id": None,
        "data_type": kind,
        "string_value": body["value"] if kind == "CATEGORICAL" else None,
        "event_ts": "2026-11-25 00:00:00.000",
        "is_deleted": 0,
        "long_string_value": "",
    }


def _value(sent: dict[str, Any]) -> Any:
    (kind, value), *_ = sent.items()
    if kind == "arrayValue":
        return [_value(one) for one in value.get("values", ())]
    return int(value) if kind == "intValue" else value


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _time(nanoseconds: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1_000_000 * 1000)
    return f"{at:%Y-%m-%d %H:%M:%S.%f}"[:23]


def events_of(tables: Tables) -> list[dict[str, Any]]:
    """The rows of version 4."""
    found = []
    for row in enriched(tables):
        metadata = row.pop("metadata")
        row |= {"span_id": row.pop("id"), "parent_span_id": row.pop("parent_observation_id") or ""}
        row |= {"metadata_names": list(metadata), "metadata_values": list(metadata.values())}
        nullable = ("end_time", "completion_start_time", "prompt_version")
        del row["total_cost"]
        found.append({k: "" if v is None and k not in nullable else v for k, v in row.items()})
    return found


def enriched(tables: Tables) -> list[dict[str, Any]]:
    """The rows of `observations_v2`: those of observations with what their traces say."""
    traces = {one["id"]: one for one in tables["traces"]}
    found = []
    for row in tables["observations"]:
        trace = traces[row["trace_id"]]
        more = {name: trace[name] for name in ("user_id", "session_id", "tags", "release")}
        found.append({**row, **more, "trace_name": trace["name"]})
    return found


def insert(ask: Callable[[str], str], database: str, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows into a table."""
    lines = "\n".join(json.dumps(row) for row in rows)
    ask(f"INSERT INTO {database}.{name} FORMAT JSONEachRow\n{lines}")


def create(ask: Callable[[str], str], database: str, *files: str) -> None:
    """Make a database with Langfuse's tables."""
    ask(f"CREATE DATABASE {database}")
    for file in files:
        text = "\n".join(line for line in (HERE / file).read_text().splitlines() if not line.startswith("--"))
        for statement in text.split(";"):
            ask(statement.replace("CREATE TABLE ", f"CREATE TABLE {database}.", 1))


def export(folder: Path, tables: Tables, suffix: str, *, is_enriched: bool = True) -> Path:
    """Write the blob storage export."""
    given = {"scores": tables["scores"]}
    if is_enriched:
        given["observations_v2"] = enriched(tables)
    else:
        given |= {"traces": tables["traces"], "observations": tables["observations"]}
    for name, rows in given.items():
        plain = [{k: v for k, v in row.items() if k not in ("event_ts", "is_deleted")} for row in rows]
        plain = [{**row, "updated_at": rows[number]["event_ts"]} for number, row in enumerate(plain)]
        path = folder / PROJECT / name / f"2026-11-25T17-00-00-000Z{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".parquet":
            pq.write_table(_arrow(plain), path)
        else:
            path.write_bytes(file_of(plain, suffix))
    (folder / PROJECT / "manifests").mkdir()
    (folder / PROJECT / "manifests" / "2026.json").write_text("{}")
    return folder


def file_of(rows: Sequence[dict[str, Any]], suffix: str) -> bytes:
    """The bytes of a file of rows: `.csv`, `.json`, or lines of JSON; also with `.gz`."""
    kind = suffix.removesuffix(".gz")
    if kind == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list({name: None for row in rows for name in row}))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()})
        data = out.getvalue().encode()
    elif kind == ".json":
        data = json.dumps(rows).encode()
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return gzip.compress(data) if suffix.endswith(".gz") else data


_MAPS = {
    "metadata": pa.map_(pa.string(), pa.string()),
    "tool_definitions": pa.map_(pa.string(), pa.string()),
    "usage_details": pa.map_(pa.string(), pa.uint64()),
    "cost_details": pa.map_(pa.string(), pa.decimal128(18, 12)),
}


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name in _MAPS:
            pairs = [list(value.items()) for value in values]
            if name == "cost_details":
                pairs = [[(k, Decimal(str(v))) for k, v in one] for one in pairs]
            columns[name] = pa.array(pairs, _MAPS[name])
        elif name.endswith("_time") or name in ("timestamp", "updated_at"):
            times = [None if value is None else datetime.fromisoformat(value) for value in values]
            columns[name] = pa.array(times, pa.timestamp("us"))
        elif name == "tags":
            columns[name] = pa.array(values, pa.list_(pa.string()))
        elif all(value is None for value in values):
            columns[name] = pa.array(values, pa.string())
        else:
            columns[name] = pa.array(values)
    return pa.table(columns)


def api(tables: Tables, *, version: int, asked: list[str] | None = None) -> Callable[..., tuple[int, str]]:
    """Answers of the API of Langfuse 3 or 4 with these rows, for `foreign.answering`."""

    def answer(method: str, url: str, body: str) -> tuple[int, str]:
        if asked is not None:
            asked.append(url)
        path = urlsplit(url).path.removeprefix("/api/public")
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if version == 4 and path == "/v2/observations":
            return _cursor([_of_v2(row) for row in enriched(tables) if _fits(row, query)], query)
        if version == 4 and path == "/v3/scores":
            return _cursor([_of_v3(row) for row in tables["scores"] if _fits(row, query)], query)
        if version == 3 and path in ("/traces", "/observations", "/v2/scores"):
            rows = tables[path.rpartition("/")[2]]
            return _page([_of_v1(row) for row in rows if _fits(row, query)], query)
        if version == 3 and path.startswith("/traces/"):
            return 200, json.dumps(next(_of_v1(one) for one in tables["traces"] if one["id"] == path[8:]))
        return 404, json.dumps({"message": "not found", "error": "LangfuseNotFoundError"})

    return answer


def _fits(row: dict[str, Any], query: dict[str, str]) -> bool:
    since = query.get("fromStartTime") or query.get("fromTimestamp")
    if since is not None and _iso(row.get("start_time") or row["timestamp"]) < since:
        return False
    return all(
        row.get(b) == query[a]
        for a, b in (("sessionId", "session_id"), ("traceId", "trace_id"))
        if a in query
    )


def _cursor(rows: list[dict[str, Any]], query: dict[str, str]) -> tuple[int, str]:
    start = int(query.get("cursor", 0))
    end = start + min(int(query["limit"]), _PAGE)
    cursor = {"cursor": str(end)} if end < len(rows) else {}
    return 200, json.dumps({"data": rows[start:end], "meta": {"limit": int(query["limit"]), **cursor}})


def _page(rows: list[dict[str, Any]], query: dict[str, str]) -> tuple[int, str]:
    page = int(query["page"])
    meta = {"page": page, "limit": _PAGE, "totalItems": len(rows), "totalPages": -(-len(rows) // _PAGE)}
    return 200, json.dumps({"data": rows[(page - 1) * _PAGE : page * _PAGE], "meta": meta})


def _camel(row: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        first, *others = name.split("_")
        is_time = name.endswith("_time") or name == "timestamp"
        found[first + "".join(one.title() for one in others)] = _iso(value) if is_time and value else value
    found = {k: v for k, v in found.items() if k not in ("eventTs", "isDeleted", "toolDefinitions")}
    if "providedModelName" in found:
        found["model"] = found.pop("providedModelName")
    return found


def _of_v2(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in _camel(row).items() if k != "metadata"}


def _of_v1(row: dict[str, Any]) -> dict[str, Any]:
    found = _camel(row)
    for name in ("input", "output", "modelParameters"):
        if str(found.get(name))[:1] in ("{", "["):
            found[name] = json.loads(found[name])
    if "dataType" in found:
        found["createdAt"] = found["updatedAt"] = found["timestamp"]
    return found


def _of_v3(row: dict[str, Any]) -> dict[str, Any]:
    found = _camel(row)
    trace, observation, session = (found.pop(name) for name in ("traceId", "observationId", "sessionId"))
    if observation:
        subject = {"kind": "observation", "id": observation, "traceId": trace}
    else:
        subject = {"kind": "trace", "id": trace} if trace else {"kind": "session", "id": session}
    text = found.pop("stringValue")
    value = {"BOOLEAN": bool(found["value"]), "CATEGORICAL": text}.get(found["dataType"], found["value"])
    for name in ("longStringValue", "datasetRunId"):
        found.pop(name)
    return {
        **found,
        "value": value,
        "subject": subject,
        "createdAt": found["timestamp"],
        "updatedAt": found["timestamp"],
    }


def _iso(text: str) -> str:
    return text.replace(" ", "T")[:23] + "Z"
