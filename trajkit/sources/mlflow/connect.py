"""Read sessions from MLflow: from the SQLite file of a tracking store, or from the API of a running server.

`?experiment=NAME` after a URL reads one experiment; without it all are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument
from trajkit.sources.calls import NO_CALL, found_by
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.mlflow import api, tables
from trajkit.sources.mlflow.rows import SCORER, session_of_traces
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.sqlite_file import has_tables, options_of, path_of
from trajkit.sources.wish import Wish

_BEFORE = "before --since"
_OF_A_JUDGE = "traces of a judge, and not of the agent"
_IN_FILES = "its spans are in files, and not in the tracking store"


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a tracking store or of a server."""
    options = options_of(place)
    experiment = options.pop("experiment", None)
    if options:
        raise RequestError(f"unknown option {', '.join(options)}", hint="known: experiment")
    if path_of(place) is not None:
        groups = tables.groups_of(place, experiment)
    else:
        groups = api.groups_of(place, experiment, wish.since)
    for group in groups:
        if wish.since is not None and group.ended_at is not None and group.ended_at < wish.since:
            yield Found(group.name, aside=_BEFORE)
        else:
            yield _found(group)


def _found(group: tables.Group) -> Found:
    place = f"{group.experiment}/{group.name}"
    try:
        traces = list(group.traces)
    except BadDocument as error:
        return Found(place, problem=error.problem)
    if traces and all(SCORER in trace.tags for trace in traces):
        return Found(place, aside=_OF_A_JUDGE)
    name = place if group.is_in_others else group.name
    make = partial(session_of_traces, name, traces, experiment=group.experiment, is_named=group.is_named)
    return found_by(make, place, empty=NO_CALL if any(trace.spans for trace in traces) else _IN_FILES)


SOURCE = Source(
    name="mlflow",
    about="sessions of MLflow's tracking store in SQLite, or of its server",
    read=read,
    recognises=lambda place: has_tables(place, *tables.TABLES),
    fidelity={
        "session": kept("`mlflow.trace.session`, else each trace is an episode"),
        "sub-agents": kept("an agent's span in that of another"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": changed("references: MLflow keeps them as attachments"),
        "cost": kept("where MLflow knows the model's price"),
        "metrics": kept("feedback that is a number or a boolean"),
        "comments": kept("feedback that is a text, reasons and expectations"),
        **lost("task and seed", "token ids"),
    },
)
