"""Record the database of a real MLflow server: the thirty episodes, and calls of every other shape.

    python -m tests.sources.mlflow.record FOLDER

Recorded with mlflow 3.18.0 and openai 3.57.0, which are installed into an environment under FOLDER. The
thirty episodes are of the experiment `babyai`; `client.shapes` is what the experiment `shapes` holds.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.node_tools import free_port, running
from tests.sources import foreign, thirty
from trajkit.sources.mlflow.connect import SOURCE
from trajkit.sources.wish import Wish

HERE = Path(__file__).parent
FIXTURE = HERE.parents[1] / "data" / "sources" / "mlflow" / "mlflow.db.gz"
API = FIXTURE.with_name("api.jsonl.gz")
REQUIREMENTS = (
    # the wheel is the whole of MLflow; what it requires beside is for models, which are not used here
    ("--no-deps", "mlflow==3.18.0"),
    (
        *("alembic<2", "cachetools<8", "click!=8.3.0,<9", "cloudpickle<4", "cryptography<51", "aiohttp<4"),
        *("databricks-sdk<1", "fastapi<1", "Flask<4", "Flask-CORS<7", "gitpython<4", "graphene<4", "huey<4"),
        *("importlib_metadata<10", "numpy<3", "openai==3.57.0", "opentelemetry-proto<3", "packaging<27"),
        *("opentelemetry-sdk<3", "pandas<4", "protobuf<8", "pydantic<3", "python-dotenv<2", "pyyaml<7"),
        *("requests<3", "sqlalchemy<3", "sqlparse<1", "uvicorn<1"),
    ),
)
KEPT = (
    *("alembic_version", "assessments", "experiments", "spans"),
    *("trace_info", "trace_request_metadata", "trace_tags"),
)
"""The tables of the fixture."""


def record(folder: Path) -> tuple[Path, list[thirty.Played]]:
    """Play against `mlflow server`, and return its database and what was played.

    What the API says of it goes to `api.jsonl.gz`.
    """
    python = foreign.environment(folder / "environment", *REQUIREMENTS)
    database = folder / "mlflow.db"
    port = free_port()
    command = [foreign.program(python, "mlflow"), "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with running(command, port, folder / "server.log") as url:
        played = _play(url, python, folder)
        with foreign.forwarded(url, folder / "api.jsonl.gz", hide=str(folder)) as address:
            for place in (address, f"{address}?experiment=shapes"):
                list(SOURCE.read(place, Wish()))
    return database, played


def _play(url: str, python: Path, folder: Path) -> list[thirty.Played]:
    """Play through MLflow's client."""
    settings = {"MLFLOW_TRACKING_URI": url, "LOGNAME": "expert"}
    script = Path(shutil.copy(HERE / "client.py", folder))  # MLflow logs the Git repository of a program
    traces: dict[str, str] = {}
    with (
        thirty.Answers() as answers,
        foreign.client(python, script, {**settings, "STAND_IN": answers.url}) as told,
    ):

        @contextmanager
        def episode(name: str) -> Iterator[thirty.Ask]:
            def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
                traces[name] = told({"do": "ask", "session": name, "messages": messages, "tools": tools})

            yield ask

        told({"do": "use", "experiment": "babyai"})
        played = thirty.play(
            answers,
            episode,
            lambda name, value: told({"do": "score", "trace": traces[name], "value": value}),
        )
        for number in range(5):
            answers.put({"role": "assistant", "content": f"Answer {number}."})
        told({"do": "use", "experiment": "shapes"})
        told({"do": "shapes"})
    return played


if __name__ == "__main__":
    made, _ = record(Path(sys.argv[1]).absolute())
    with closing(sqlite3.connect(made)) as connection:  # no paths of the machine
        for table, column in (("spans", "content"), ("trace_request_metadata", "value")):
            connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, '')", (str(made.parent),))
        connection.commit()
    foreign.shrink(made, KEPT)
    foreign.packed(made, FIXTURE)
    shutil.copy(made.with_name("api.jsonl.gz"), API)
