"""Read traces from the API of a running MLflow server of 3.6 or later, session by session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError
from trajkit.formats.reading.document import known_time_at, object_at, objects_at, part_of, text_at
from trajkit.sources.calls import Gathered
from trajkit.sources.mlflow.tables import SESSION, Group, Trace
from trajkit.sources.spans.span import parsed
from trajkit.sources.web import Web, basic, bearer, told

_TRACES = "/api/3.0/mlflow/traces"
_PAGE, _BATCH = 500, 20
_LONGEST = timedelta(days=1)
"""Longer traces that start before `--since` and end after it are not found."""
_USER, _PASSWORD, _TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"


def groups_of(place: str, experiment: str | None, since: datetime | None) -> Iterator[Group]:
    """Yield the groups of a server, in the order of their first traces.

    Args:
        place: Address of the server.
        experiment: Name of the only experiment that is read; None for all that are not deleted.
        since: Leave out sessions without a trace that may have ended since then.

    Raises:
        RequestError: There is no such experiment.
        ServiceError: The server cannot be reached, or refuses.
    """
    with Web("MLflow", place, _headers(), key_variable=_TOKEN) as web, Gathered() as gathered:
        names = _experiments(web, experiment)
        filters = [] if since is None else [f"timestamp_ms >= {int((since - _LONGEST).timestamp() * 1000)}"]
        used_in: dict[str, set[str]] = {}
        for info in _search(web, names, filters):
            own = told(info, "trace_location", "mlflow_experiment", "experiment_id")
            trace_id = told(info, "trace_id")
            session = told(info, "trace_metadata", SESSION) if _has_session(info) else None
            gathered.add(
                f"{own}/{session or trace_id}", {"id": trace_id, "session": session, "experiment": own}
            )
            if session:
                used_in.setdefault(session, set()).add(own)
        for _, parts in gathered.groups():
            rows = parts[""]
            session, own = rows[0]["session"], rows[0]["experiment"]
            ids = [row["id"] for row in rows]
            if since is not None and session:  # with the earlier part
                ids = [
                    told(info, "trace_id") for info in _search(web, {own: ""}, [_is_session(session)])
                ] or ids
            is_in_others = len(used_in.get(session, ())) > 1
            yield Group(session or ids[0], bool(session), names[own], is_in_others, None, _traces(web, ids))


def _headers() -> Mapping[str, str]:
    """Return the credentials as MLflow's client sends them: a token, or user and password."""
    user, password = secret_from_environment(_USER), secret_from_environment(_PASSWORD)
    if user is not None and password is not None:
        return {"Authorization": basic(user.get_secret_value(), password.get_secret_value())}
    return bearer(_TOKEN)


def _experiments(web: Web, name: str | None) -> dict[str, str]:
    """Return the names of experiments by id."""
    found = {
        told(one, "experiment_id"): told(one, "name")
        for one in _paged(web, "/api/2.0/mlflow/experiments/search", {"max_results": _PAGE}, "experiments")
    }
    wanted = {key: each for key, each in found.items() if name in (None, each)}
    if not wanted:
        raise RequestError(f"no experiment {name!r}", hint=f"there are: {', '.join(sorted(found.values()))}")
    return wanted


def _search(web: Web, experiments: Mapping[str, str], filters: Sequence[str]) -> Iterator[dict[str, Any]]:
    body = {
        "locations": [
            {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": one}} for one in experiments
        ],
        "filter": " AND ".join(filters),
        "max_results": _PAGE,
        "order_by": ["timestamp_ms ASC"],
    }
    return _paged(web, f"{_TRACES}/search", body, "traces")


def _paged(web: Web, path: str, body: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    token = None
    while True:
        answer = web.post(path, {**body, **({} if token is None else {"page_token": token})})
        rows = answer.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
            raise ServiceError(f"MLflow answered {path} without a list of {name}", hint="is this MLflow 3?")
        yield from rows
        before, token = token, answer.get("next_page_token") or None
        if token is None or token == before:
            return


def _traces(web: Web, ids: Sequence[str]) -> Iterator[Trace]:
    for at in range(0, len(ids), _BATCH):
        answer = web.get(f"{_TRACES}/batchGet", {"trace_ids": list(ids[at : at + _BATCH])})
        traces = [_trace(one) for one in objects_at(answer.get("traces"), "traces")]
        by_id = {trace.trace_id: trace for trace in traces}
        for trace_id in ids[at : at + _BATCH]:
            if trace_id in by_id:  # else it was deleted meanwhile
                yield by_id[trace_id]


def _trace(document: Mapping[str, Any]) -> Trace:
    info = object_at(document.get("trace_info"), "trace_info")
    return Trace(
        text_at(info.get("trace_id"), "trace_info.trace_id"),
        part_of(info, "trace_metadata"),
        part_of(info, "tags"),
        objects_at(document.get("spans"), "spans"),
        [_assessment(one) for one in objects_at(info.get("assessments"), "assessments")],
    )


def _assessment(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assessment of the API with the names of the table's columns."""
    kind = next(
        (one for one in ("feedback", "expectation", "issue") if isinstance(sent.get(one), dict)), None
    )
    inner = sent.get(kind or "") or {}
    value: Any = inner.get("value")
    if isinstance(serialized := inner.get("serialized_value"), dict):
        value = parsed(serialized.get("value"))
    source = part_of(sent, "source")
    return {
        "assessment_id": sent.get("assessment_id"),
        "trace_id": sent.get("trace_id"),
        "span_id": sent.get("span_id"),
        "name": sent.get("assessment_name"),
        "assessment_type": kind,
        "value": value,
        "error": inner.get("error"),
        "created_at": known_time_at(sent.get("create_time"), "create_time"),
        "source_type": source.get("source_type"),
        "source_id": source.get("source_id"),
        "run_id": sent.get("run_id"),
        "rationale": sent.get("rationale"),
        "overrides": sent.get("overrides"),
        "valid": sent.get("valid", True),
        "assessment_metadata": sent.get("metadata"),
    }


def _has_session(info: Mapping[str, Any]) -> bool:
    metadata = info.get("trace_metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get(SESSION))


def _is_session(session: str) -> str:
    quote = '"' if "'" in session else "'"
    return f"metadata.`{SESSION}` = {quote}{session}{quote}"
