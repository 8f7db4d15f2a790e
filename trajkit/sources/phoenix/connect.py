"""Read sessions from Phoenix: from its SQLite database, or from the API of a running server.

`?project=NAME` after a URL reads one project; without it all are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trajkit.errors import RequestError
from trajkit.sources.calls import found_by
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.phoenix import api, tables
from trajkit.sources.phoenix.rows import session_of_group
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.sqlite_file import has_tables, options_of, path_of
from trajkit.sources.wish import Wish

_BEFORE = "before --since"


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a database or of a server."""
    options = options_of(place)
    project = options.pop("project", None)
    if options:
        raise RequestError(f"unknown option {', '.join(options)}", hint="known: project")
    of_place = api.groups_of if path_of(place) is None else tables.groups_of
    for group in of_place(place, project):
        if wish.since is not None and group.ended_at is not None and group.ended_at < wish.since:
            yield Found(group.name, aside=_BEFORE)
        else:
            yield found_by(partial(session_of_group, group), f"{group.project}/{group.name}")


SOURCE = Source(
    name="phoenix",
    about="sessions of Phoenix's SQLite database, or of its server",
    read=read,
    recognises=lambda place: has_tables(place, *tables.TABLES),
    fidelity={
        "session": kept("`session.id`, else each trace is an episode"),
        "sub-agents": kept("an agent's span in that of another"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the instrumentation logs them"),
        "cost": kept("from the database, where Phoenix knows the model's price"),
        "finish reason": kept("since `llm.finish_reason`"),
        "metrics": kept("annotations with a score, but those of documents"),
        "comments": kept("labels without a score, explanations and notes"),
        **lost("task and seed", "token ids"),
    },
)
