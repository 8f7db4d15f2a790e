"""What inputs show comes in the order of the inputs, however many threads DuckDB has."""

from __future__ import annotations

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.choose import open_workspace
from trajkit.sources.tensorzero.export.texts.observed import OBSERVATION, Observing


def test_many_observations_stay_in_order() -> None:
    n_rows = 600_000  # of fewer DuckDB gives them in order, whatever it was asked
    texts = [
        f'{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{n}"}}]}}]}}'
        for n in range(n_rows)
    ]
    batch = pa.RecordBatch.from_pydict({"input": pa.array(texts, pa.string())})
    with open_workspace() as opened:
        workspace = opened()
        workspace.connection.execute("SET threads = 4")
        observing = Observing(workspace.connection, ExportRequest(), workspace.unreadable)
        (observed,) = observing.of(iter([batch]))
    assert observed.column(OBSERVATION.name).to_pylist() == [str(n) for n in range(n_rows)]
