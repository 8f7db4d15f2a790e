"""Record the database of a real Phoenix server: the thirty episodes, and calls of every other shape.

    python -m tests.sources.phoenix.record FOLDER

Recorded with arize-phoenix 20.26.1, arize-phoenix-otel 0.17.2, openinference-instrumentation-openai 0.1.66
and openai 3.57.0, which are installed into an environment under FOLDER. The thirty episodes are of the
project `babyai`; `client.shapes` is what the project `shapes` holds.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from contextlib import closing, nullcontext
from pathlib import Path

from tests.node_tools import free_port, running
from tests.sources import foreign, thirty
from trajkit.sources.phoenix.connect import SOURCE
from trajkit.sources.wish import Wish

HERE = Path(__file__).parent
FIXTURE = HERE.parents[1] / "data" / "sources" / "phoenix" / "phoenix.db.gz"
API = FIXTURE.with_name("api.jsonl.gz")
REQUIREMENTS = (
    (
        "arize-phoenix==20.26.1",
        "arize-phoenix-otel==0.17.2",
        "openai==3.57.0",
        "openinference-instrumentation-openai==0.1.66",
    ),
)
KEPT = (
    *("alembic_version", "projects", "project_sessions", "traces", "spans", "span_costs"),
    *("span_annotations", "trace_annotations", "document_annotations", "project_session_annotations"),
)
"""The tables of the fixture."""


def record(folder: Path) -> tuple[Path, list[thirty.Played]]:
    """Play against `phoenix serve`, and return its database and what was played.

    What the API says of it goes to `api.jsonl.gz`.
    """
    python = foreign.environment(folder / "environment", *REQUIREMENTS)
    port = free_port()
    settings = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    plain = [f"{name}={value}" for name, value in settings.items()]
    command = ["env", "-u", "PYTHONPATH", *plain, foreign.program(python, "phoenix"), "serve"]
    with running(command, port, folder / "server.log") as url:
        played = _play(url, python)
        with foreign.forwarded(url, folder / "api.jsonl.gz", hide=str(folder)) as address:
            for place in (address, f"{address}?project=shapes"):
                list(SOURCE.read(place, Wish()))
    return folder / "phoenix.db", played


def _play(url: str, python: Path) -> list[thirty.Played]:
    """Play through Phoenix's client."""
    with thirty.Answers() as answers:
        settings = {"PHOENIX_COLLECTOR_ENDPOINT": url, "STAND_IN": answers.url}
        with foreign.client(python, HERE / "client.py", {**settings, "PROJECT": "babyai"}) as told:
            played = thirty.play(
                answers,
                lambda name: nullcontext(
                    lambda messages, tools: told(
                        {"do": "ask", "session": name, "messages": messages, "tools": tools}
                    )
                ),
                lambda name, value: told({"do": "score", "session": name, "value": value}),
            )
        for number in range(5):
            answers.put({"role": "assistant", "content": f"Answer {number}."})
        with foreign.client(python, HERE / "client.py", {**settings, "PROJECT": "shapes"}) as told:
            told({"do": "shapes"})
            told({"do": "costs"})
    return played


if __name__ == "__main__":
    made, _ = record(Path(sys.argv[1]).absolute())
    with closing(sqlite3.connect(made)) as connection:  # no paths of the machine
        connection.execute("UPDATE spans SET events = replace(events, ?, '')", (str(made.parent),))
        connection.commit()
    foreign.shrink(made, KEPT)
    foreign.packed(made, FIXTURE)
    shutil.copy(made.with_name("api.jsonl.gz"), API)
