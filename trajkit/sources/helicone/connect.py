"""Read sessions from files of Helicone's requests, as `/v1/request/query` gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.calls import Gathered
from trajkit.sources.files.exported import rows_under
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.helicone.rows import REQUEST, session_id_of, session_of_rows
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.wish import Wish


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of files of requests."""
    if "://" in place:
        raise RequestError("Helicone is read from files: save what /v1/request/query answers")
    with Gathered() as gathered:
        for one in rows_under(Path(place)):
            if isinstance(one, Found | Unread):
                yield one
                continue
            where, row = one
            try:
                if not isinstance(row.get("request_id"), str) or not row.get("request_created_at"):
                    raise BadDocument("no request of Helicone's", value=shown(sorted(row)[:6]))
                session = session_id_of(row)
                name = f"request {row['request_id']}" if session is None else f"session {session}"
                gathered.add(name, row, part=REQUEST)
            except BadDocument as error:
                yield Found(where, problem=error.problem)
        yield from gathered.sessions(session_of_rows)


SOURCE = Source(
    name="helicone",
    about="sessions of Helicone: exported requests with their bodies",
    read=read,
    fidelity={
        "session": kept("the property `Helicone-Session-Id`, else each request is an episode"),
        "prompt": kept("where the export has the bodies"),
        "answer": kept("where the export has the bodies"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": kept("those that are in the request"),
        "metrics": kept("scores, and feedback as `rating`"),
        "tags and user": kept("properties are tags"),
        **lost("sub-agents", "comments", "task and seed", "token ids"),
    },
)
