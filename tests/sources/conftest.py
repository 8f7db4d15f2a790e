"""A real ClickHouse with the schema that the real gateway makes, and rows as TensorZero writes them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import clickhouse_connect
import pytest

from tests.sources import generated
from tests.sources import postgres_server as postgres
from tests.sources.row_database import BASE_MS, row_id, spelled
from trajkit.schema import Episode
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest, MetricCondition, Tally
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export
from trajkit.stack.clickhouse import ClickHouse as Server
from trajkit.stack.clickhouse import User
from trajkit.stack.gateway import create_schema
from trajkit.stack.gateway_config import prepare_config
from trajkit.store.dataset import open_dataset

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"
READER = User("reader", "only looks", is_readonly=True)
TABLES = (
    "ChatInference",
    "JsonInference",
    "ModelInference",
    "FloatMetricFeedback",
    "BooleanMetricFeedback",
    "CommentFeedback",
    "DemonstrationFeedback",
)


class Rows:
    """Rows of a database; ids are UUIDv7 whose times go up by a second with every row.

    An INSERT costs the server the same for one row as for a hundred: rows wait until something reads.
    """

    waiting: ClassVar[dict[Rows, list[tuple[str, dict[str, Any]]]]] = {}
    """The table and the values of each row that is not written yet, in order."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._n = itertools.count(1)

    @classmethod
    def write(cls) -> None:
        """Write the rows that wait."""
        while cls.waiting:
            rows, waiting = cls.waiting.popitem()
            by_columns: dict[tuple[str, ...], list[str]] = {}
            for table, row in waiting:
                values = f"({', '.join(map(_literal, row.values()))})"
                by_columns.setdefault((table, *row), []).append(values)
            for (table, *names), values in by_columns.items():
                rows._client.command(f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join(values)}")

    def id(self, *, at_ms: int | None = None) -> str:
        number = next(self._n)
        return row_id(number, at_ms=BASE_MS + number * 1000 if at_ms is None else at_ms)

    def insert(self, table: str, **row: Any) -> None:
        self.waiting.setdefault(self, []).append((table, row))

    def json_step(
        self,
        episode_id: str,
        *,
        raw: str | None = '{"thinking":"", "action":"go forward"}',
        parsed: Any = ...,
        observation: str = "a wall 1 step forward",
        function: str = "act",
        variant: str = "baseline",
        tags: dict[str, str] | None = None,
        inference_id: str | None = None,
        calls: int = 1,
        input: dict[str, Any] | None = None,
        **row: Any,
    ) -> str:
        inference_id = inference_id or self.id()
        if parsed is ...:
            parsed = json.loads(raw or "null")
        user = {"type": "template", "name": "user", "arguments": {"observation": observation}}
        self.insert(
            "JsonInference",
            id=inference_id,
            function_name=function,
            variant_name=variant,
            episode_id=episode_id,
            input=spelled(
                input or {"system": {"mission": "m"}, "messages": [{"role": "user", "content": [user]}]}
            ),
            output=spelled({"raw": raw, "parsed": parsed}),
            output_schema="{}",
            inference_params='{"chat_completion":{}}',
            processing_time_ms=20,
            tags=tags or {},
            **row,
        )
        for _ in range(calls):
            self.call(inference_id, user=f"Observation:\n{observation}", text=raw)
        return inference_id

    def call(
        self, inference_id: str, *, user: str, text: str | None, system: str | None = "You play.", **row: Any
    ) -> str:
        call_id = self.id()
        messages = [{"role": "user", "content": [{"type": "text", "text": user}]}]
        self.insert(
            "ModelInference",
            **{
                "id": call_id,
                "inference_id": inference_id,
                "raw_request": "{}",
                "raw_response": "{}",
                "model_name": "agent",
                "model_provider_name": "stand_in",
                "input_tokens": 11,
                "output_tokens": 7,
                "system": system,
                "input_messages": spelled(messages),
                "output": spelled([{"type": "text", "text": text}]),
                "finish_reason": "stop",
            }
            | row,
        )
        return call_id

    def chat_step(
        self,
        episode_id: str,
        *,
        output: list[Any],
        prompt: Sequence[Any] = (),
        tool_params: Any = "",
        calls: int = 1,
        **row: Any,
    ) -> str:
        inference_id = self.id()
        self.insert(
            "ChatInference",
            **{
                "id": inference_id,
                "function_name": "talk",
                "variant_name": "plain",
                "episode_id": episode_id,
                "input": spelled({"messages": prompt}),
                "output": spelled(output),
                "tool_params": spelled(tool_params) if tool_params else "",
                "inference_params": '{"chat_completion":{}}',
                "tags": {},
            }
            | row,
        )
        for _ in range(calls):
            self.call(inference_id, user="", text=None, system=None, input_messages=spelled(prompt))
        return inference_id

    def float(self, target: str, value: float, *, metric: str = "episode_return", **row: Any) -> str:
        feedback_id = self.id()
        self.insert(
            "FloatMetricFeedback",
            **{"id": feedback_id, "target_id": target, "metric_name": metric, "value": value, "tags": {}}
            | row,
        )
        return feedback_id

    def boolean(self, target: str, value: bool, *, metric: str = "success", **row: Any) -> None:
        self.insert(
            "BooleanMetricFeedback",
            **{"id": self.id(), "target_id": target, "metric_name": metric, "value": value, "tags": {}} | row,
        )

    def comment(self, episode_id: str, value: str, **row: Any) -> None:
        known = {"id": self.id(), "target_id": episode_id, "target_type": "episode", "value": value}
        self.insert("CommentFeedback", **known | row)

    def demonstration(self, inference_id: str, value: Any) -> None:
        text = value if isinstance(value, str) else spelled(value)
        self.insert("DemonstrationFeedback", id=self.id(), inference_id=inference_id, value=text)

    def copy(self, episode_id: str, n_copies: int, *, input_sql: str = "input") -> None:
        """Insert each JSON step of an episode `n_copies` more times, with ids of their own."""
        new_id = "toUUID(concat(substring(toString(id), 1, 24), leftPad(lower(hex(number)), 12, 'f')))"
        names = "function_name, variant_name, episode_id"
        self.write()
        self._client.command(
            f"INSERT INTO JsonInference (id, {names}, input, output, output_schema, inference_params, tags)"
            f" SELECT {new_id}, {names}, {input_sql}, output, '{{}}', '{{}}', tags"
            f" FROM JsonInference AS j CROSS JOIN numbers({n_copies}) AS n WHERE episode_id = '{episode_id}'"
        )

    def episode(self, value: float | None = 1.0, *, n_steps: int = 2, **step: Any) -> str:
        """An episode of `n_steps` JSON steps, scored unless `value` is None."""
        episode_id = self.id()
        for _ in range(n_steps):
            self.json_step(episode_id, **step)
        if value is not None:
            self.float(episode_id, value)
        return episode_id


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"map({', '.join(_literal(item) for pair in value.items() for item in pair)})"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).lower()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server.start(tmp_path_factory.mktemp("sources") / "clickhouse", users=[READER]) as running:
        scratch = tmp_path_factory.mktemp("config") / "babyai"
        config = prepare_config(RECIPE, scratch, model_url="http://127.0.0.1:9")  # nothing is asked of it
        asyncio.run(create_schema(config, running.secret_url))
        yield running


@pytest.fixture(scope="session", autouse=True)
def _rows_are_written_before_they_are_read() -> Iterator[None]:
    def after_writing(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(*arguments: Any, **options: Any) -> Any:
            Rows.write()
            return method(*arguments, **options)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("__init__", "query", "stream"):
            patch.setattr(Connection, name, after_writing(getattr(Connection, name)))
        yield


class _Client:
    """A client that finds all rows written."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        Rows.write()
        return getattr(self._client, name)


def _client_of(server: Server, database: str) -> Any:
    # a backup in memory ends with its session: after a minute without a query, unless it is told otherwise
    settings = {"session_timeout": 3600}
    return clickhouse_connect.get_client(
        dsn=server.url_for(server.user, database=database), settings=settings
    )


@pytest.fixture(scope="session")
def writing_client(server: Server) -> Iterator[Any]:
    with contextlib.closing(_client_of(server, "tensorzero")) as found:
        yield found


@pytest.fixture(scope="session")
def client(writing_client: Any) -> Any:
    return _Client(writing_client)


@pytest.fixture
def url(server: Server, writing_client: Any) -> str:
    """A database without rows; what connects only reads."""
    tables = "SELECT name FROM system.tables WHERE database = 'tensorzero' AND total_rows > 0 AND name IN"
    for (table,) in writing_client.query(f"{tables} {TABLES}").result_rows:
        writing_client.command(f"TRUNCATE TABLE {table}")
    return server.url_for(READER)


@pytest.fixture
def rows(url: str, writing_client: Any) -> Iterator[Rows]:
    made = Rows(writing_client)
    yield made
    Rows.waiting.pop(made, None)


@pytest.fixture(scope="session")
def clickhouse_of(server: Server, writing_client: Any) -> Callable[[str, Any], str]:
    """Make a database of a name in ClickHouse and fill it with generated rows; gives the reader's URL."""
    # a copy of TensorZero's tables takes the server a tenth of the time that its migrations take
    writing_client.command("BACKUP DATABASE tensorzero TO Memory('empty') SETTINGS structure_only = 1")

    def made(name: str, data: Any) -> str:
        writing_client.command(f"RESTORE DATABASE tensorzero AS {name} FROM Memory('empty')")
        for table in ("DeploymentID", "TensorZeroMigration"):
            writing_client.command(f"INSERT INTO {name}.{table} SELECT * FROM tensorzero.{table}")
        with contextlib.closing(_client_of(server, name)) as client:
            generated.fill_clickhouse(client, data)
        return server.url_for(READER, database=name)

    return made


@pytest.fixture(scope="session")
def rows_of(
    server: Server, clickhouse_of: Callable[[str, Any], str]
) -> Iterator[Callable[[str], tuple[Rows, str]]]:
    """Make a database of a name in ClickHouse; gives what writes rows into it, and the reader's URL."""
    with contextlib.ExitStack() as stack:

        def made(name: str) -> tuple[Rows, str]:
            url = clickhouse_of(name, generated.Data())
            return Rows(stack.enter_context(contextlib.closing(_client_of(server, name)))), url

        yield made


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A real Postgres (`postgres_server.py`)."""
    if postgres.find_programs() is None:
        pytest.skip("no programs of Postgres: `make system` installs them (Debian's package postgresql)")
    with postgres.running() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_of(postgres_server: Any) -> Callable[[str, Any], str]:
    """Make a database of a name in Postgres and fill it with generated rows; gives the reader's URL."""

    def made(name: str, data: Any) -> str:
        url = str(postgres_server.make_database(name))
        with postgres_server.connect(name) as connection:
            generated.fill_postgres(connection, data)
        return url

    return made


@pytest.fixture(scope="session")
def shared_data() -> Any:
    """Rows of every shape, for tests that only read them."""
    return generated.generated(seed=5, n_episodes=104)


@pytest.fixture(scope="session")
def shared_clickhouse(clickhouse_of: Callable[[str, Any], str], shared_data: Any) -> str:
    """The reader's URL of a ClickHouse that has them."""
    return clickhouse_of("shared", shared_data)


@pytest.fixture(scope="session")
def shared_postgres(postgres_of: Callable[[str, Any], str], shared_data: Any) -> str:
    """The reader's URL of a Postgres that has them."""
    return postgres_of("shared", shared_data)


def exported(source: Any, goal: Path | None, access: Access | None = None, **options: Any) -> Any:
    """Export from a database, or from the one at a URL, and close it; the tally and the manifest."""
    database = open_database(source, access or Access()) if isinstance(source, str) else source
    with contextlib.closing(database):
        return export(database, ExportRequest(**options), goal)


def left(tally: Tally) -> dict[str, tuple[int, int]]:
    """By reason the episodes and the steps that left."""
    return {entry.reason: (entry.n_episodes, entry.n_steps) for entry in tally.left}


def masked(tally: Tally) -> dict[str, int]:
    """By reason the steps that are only context."""
    return {entry.reason: entry.n_steps for entry in tally.masked}


@pytest.fixture
def folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose environment names the database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", url)
    return tmp_path


Exporter = Callable[..., tuple[Tally, dict[str, Episode]]]


@pytest.fixture
def run(url: str, tmp_path: Path) -> Exporter:
    """Export with these options; give the tally and the episodes by id."""
    numbers = itertools.count()

    def run(*conditions: MetricCondition, **options: Any) -> tuple[Tally, dict[str, Episode]]:
        goal = tmp_path / f"store-{next(numbers)}"
        tally, _ = exported(url, goal, metrics=conditions, **options)
        return tally, {episode.episode_id: episode for episode in open_dataset(goal)}

    return run
