"""Read sessions from LangSmith: from its bulk export, or from runs and feedback as its client lists them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.calls import Gathered
from trajkit.sources.files.exported import rows_under
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.langsmith.rows import FEEDBACK, RUN, session_of_rows, thread_of
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.wish import Wish


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of files of runs and of feedback."""
    if "://" in place:
        raise RequestError(
            "LangSmith is read from files: those of a bulk export, or of JSON lines of `Client.list_runs`"
        )
    with Gathered() as gathered:
        traces: dict[str, str] = {}
        feedback: list[dict[str, Any]] = []
        for found in rows_under(Path(place)):
            if isinstance(found, Found | Unread):
                yield found
            elif (problem := _gather(gathered, traces, feedback, *found)) is not None:
                yield problem
        for one in feedback:  # a row of it names its run, and not always the trace
            if trace_id := traces.get(str(one["run_id"])) or one.get("trace_id"):
                gathered.add(f"trace {trace_id}", one, part=FEEDBACK)
        yield from gathered.sessions(session_of_rows, beside=FEEDBACK)


def _gather(
    gathered: Gathered,
    traces: dict[str, str],
    feedback: list[dict[str, Any]],
    place: str,
    row: dict[str, Any],
) -> Found | None:
    try:
        if row.get("id") is None:
            raise BadDocument("a row without its id", "id")
        if "key" in row and "run_id" in row:
            feedback.append(row)
            return None
        if "run_type" not in row:
            raise BadDocument("no run of LangSmith's, and no feedback", value=shown(sorted(row)[:6]))
        trace = f"trace {row.get('trace_id') or row['id']}"
        gathered.add(trace, {**row, "trace_id": trace.removeprefix("trace ")}, part=RUN)
        traces[str(row["id"])] = trace.removeprefix("trace ")
        if (thread := thread_of(row)) is not None:
            gathered.move(trace, f"session {thread}")
    except BadDocument as error:
        return Found(place, problem=error.problem)
    return None


SOURCE = Source(
    name="langsmith",
    about="sessions of LangSmith: its bulk export, or JSON lines of its runs and feedback",
    read=read,
    fidelity={
        "session": kept("`session_id`, `thread_id` or `conversation_id` of the metadata"),
        "sub-agents": kept("where LangChain names the agent (`lc_agent_name`)"),
        "tool results": kept("those that a later prompt has"),
        "tools offered": kept("where `invocation_params` or the inputs have them"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": kept("those that are in messages"),
        "metrics": kept("feedback with a score, else the averages of the run"),
        **lost("task and seed", "token ids"),
    },
)
