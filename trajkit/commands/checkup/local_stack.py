"""What `trajkit up` started in this folder: does it run still, and does it answer?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajkit.commands.checkup.address import UNREACHABLE, ask, why
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.errors import TrajkitError

if TYPE_CHECKING:
    from trajkit.stack.state import LocalStack, ModelServer

_NAME = "local stack"
_UP, _AGAIN = "trajkit up", "trajkit down, then trajkit up"
_INSTEAD = ("TENSORZERO_CLICKHOUSE_URL", "TENSORZERO_GATEWAY_URL")
"""Variables that are heard before the stack is looked for."""


def local_stack() -> Iterator[Check]:
    """Its database and its model server, by the file that `trajkit up` left."""
    from trajkit.stack.state import read_state

    try:
        state = read_state()
    except TrajkitError as error:
        yield broken(_NAME, error.message, error.hint)
        return
    if state is None:
        yield note(_NAME, "nothing is up in this folder", _UP)
        return
    yield _clickhouse(state)
    if state.model_server is not None:
        yield _model_server(state.model_server)
    for variable in _INSTEAD:
        if state.clickhouse.is_running and os.environ.get(variable):
            yield note(_NAME, f"{variable} is set, and is heard instead of it", f"unset {variable}")


def _clickhouse(state: LocalStack) -> Check:
    from trajkit.stack.local import row_counts

    if not state.clickhouse.is_running:
        said = f"ClickHouse (process {state.clickhouse.pid}) has ended; its data are in {state.data_folder}"
        return broken(_NAME, said, f"{_UP} starts it on the same data, trajkit down forgets it")
    try:
        n_rows = sum(row_counts(state).values())
    except TrajkitError as error:
        return broken(_NAME, error.message, _AGAIN)
    return well(_NAME, f"ClickHouse answers, {n_rows:,} rows", pid=state.clickhouse.pid, n_rows=n_rows)


def _model_server(server: ModelServer) -> Check:
    if not server.process.is_running:
        return broken("model server", f"process {server.process.pid} has ended", _UP)
    try:
        status = ask(f"{server.url}/health").status
    except UNREACHABLE as error:
        return broken("model server", f"nothing answers at {server.url}: {why(error)}", _AGAIN)
    if status != 200:
        return broken("model server", f"{server.url} answers {status}", _AGAIN)
    what = ", ".join(server.models) or "the stand-in, a rule player"
    return well("model server", f"{server.url} answers: {what}", url=server.url)
