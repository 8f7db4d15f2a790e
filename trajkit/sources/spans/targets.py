"""What a score of a span or of a trace is a score of: a call, or the whole session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trajkit.sources.calls import Call


class Targets:
    """The calls that scores of a session may be of.

    Args:
        calls: Its calls, whose ids are those of their spans.
        parents: By span the span around it; None for the root of a trace.
        traces: By span its trace.
    """

    def __init__(
        self, calls: Sequence[Call], parents: Mapping[str, str | None], traces: Mapping[str, str]
    ) -> None:
        self._parents = parents
        self._ids = {call.call_id for call in calls}
        self._last_of_trace: dict[str, str] = {}
        self._last_below: dict[str, str] = {}
        for call in sorted(calls, key=lambda one: one.started_at or datetime(1, 1, 1, tzinfo=UTC)):
            if call.agent_run is None or traces[call.call_id] not in self._last_of_trace:
                self._last_of_trace[traces[call.call_id]] = call.call_id
            seen: set[str] = set()
            above: str | None = call.call_id
            while above is not None and above in parents and above not in seen:
                seen.add(above)
                self._last_below[above] = call.call_id
                above = parents[above]

    def call_of(self, span_id: str | None, trace_id: str | None) -> str | None:
        """Return the call that a score is of; None for the whole session.

        That is the scored span, else the last call in it. A score of a trace, or of the root of one, is
        of the last call of the trace where the session has others.
        """
        if span_id in self._ids:
            return span_id
        if span_id is not None and self._parents.get(span_id) in self._parents:
            return self._last_below.get(span_id)
        return self._last_of_trace.get(trace_id or "") if len(self._last_of_trace) > 1 else None
