"""The database goes away in the middle of an answer, in every way it can; the next export is whole."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pyarrow as pa
import pytest
from pydantic import SecretStr

from bench import synthetic
from tests import warm
from tests.matrix import daily
from tests.sources import proxy
from tests.sources.conftest import exported
from trajkit.cli.main import run as trajkit
from trajkit.errors import ServiceError
from trajkit.sources.access import Access, LimitReached
from trajkit.sources.open import Location, export_from
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.clickhouse import connection as clickhouse_connection
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.url import parse_url
from trajkit.stack.clickhouse import ClickHouse as Server
from trajkit.stack.clickhouse import User
from trajkit.stack.gateway import create_schema
from trajkit.stack.gateway_config import prepare_config
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
READER = User("reader", "p@ss:w/rd; only?looks#", is_readonly=True)
N_INFERENCES = 12_000
LOGGING = """
<clickhouse>
  <query_log><flush_interval_milliseconds>100</flush_interval_milliseconds></query_log>
</clickhouse>
"""
ONE_COLUMN = pa.schema([("text", pa.string())])


class Database:
    """A server that tests may kill: each test finds it running, on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = Server.start(folder, users=[READER])

    @property
    def server(self) -> Server:
        if not self._server.is_running:
            self._server = Server.start(self._folder, users=[READER])
        return self._server

    @property
    def url(self) -> str:
        return self.server.url

    def url_through(self, port: int) -> str:
        return self.url.replace(f":{self.server.port}/", f":{port}/")

    def kill(self) -> None:
        self._server.kill()

    def log_soon(self) -> None:
        """Let the server, which starts again, write its log every tenth of a second."""
        self.kill()
        (self._folder / "config.d").mkdir()
        (self._folder / "config.d" / "log.xml").write_text(LOGGING)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """About 30 MB of steps, model calls and feedback."""
    folder = tmp_path_factory.mktemp("faults")
    running = Database(folder / "clickhouse")
    try:
        recipe = ROOT / "recipes" / "babyai" / "tensorzero.toml"
        config = prepare_config(recipe, folder / "config", model_url="http://127.0.0.1:9")
        asyncio.run(create_schema(config, running.server.secret_url))
        client = clickhouse_connect.get_client(dsn=running.url)
        synthetic.fill(client, n_inferences=N_INFERENCES)
        client.close()
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="module")
def undisturbed(database: Database, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of an export that nothing happened to."""
    goal = tmp_path_factory.mktemp("undisturbed") / "store"
    _, manifest = exported(database.url, goal)
    assert manifest.counts.n_steps == N_INFERENCES
    return manifest.digest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def through(database: Database) -> Iterator[Any]:
    with proxy.Proxy(database.server.port) as running:
        yield running


Failed = Callable[[str], str]


@pytest.fixture
def failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Failed:
    """Run an export that must fail as a service does; give what it said. Nothing stays behind."""

    def exported(url: str) -> str:
        assert trajkit(["export", "--source", url, "-o", "s"]) == 4
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        assert list(folder.iterdir()) == []
        return printed.err

    return exported


def digest_of_another_run(url: str, folder: Path) -> str:
    assert trajkit(["export", "--source", url, "-o", "s"]) == 0
    return open_store(folder / "s").manifest.digest


def connected(url: str, access: Access = Access()) -> contextlib.closing[Connection]:  # noqa: B008 -- frozen
    return contextlib.closing(Connection(parse_url(url), access))


def settings_of(url: str, names: tuple[str, ...], access: Access = Access()) -> dict[str, str]:  # noqa: B008 -- frozen
    """What a query of ours runs with on the server."""
    with connected(url, access) as connection:
        return dict(connection.query(f"SELECT name, value FROM system.settings WHERE name IN {names}"))


# -- the network ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "about", "after"),
    daily(
        [
            pytest.param(how, about, after, id=f"{how} {where}")
            for about, after, where in (
                ("model_provider_name", 500_000, "in the model calls"),
                ("JsonInference", 0, "at the first question"),
                ("auxiliary_content", 500_000, "in the inferences"),
                ("AS exact_", 6_000, "in the feedback"),
            )
            for how in ("reset", "close")
        ],
        1,
    ),
)
def test_a_connection_that_breaks_leaves_nothing_and_the_next_export_is_whole(
    database: Database,
    through: Any,
    failed: Failed,
    folder: Path,
    undisturbed: str,
    how: str,
    about: str,
    after: int,
) -> None:
    url = database.url_through(through.port)
    # a question that nothing came back for is asked again: the whole of it must fail
    through.fail(how, after=after, about=about, times=10 if after == 0 else 1)
    said = failed(url)
    assert through.n_faults >= 1
    assert "error: ClickHouse at http://127.0.0.1" in said
    through.mend()
    assert digest_of_another_run(url, folder) == undisturbed


def test_a_server_that_stops_talking_is_given_up(
    database: Database,
    through: Any,
    failed: Failed,
    folder: Path,
    undisturbed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clickhouse_connection, "_STREAM_TIMEOUT_S", 2)
    url = database.url_through(through.port)
    through.fail("stall", after=300_000, about="model_provider_name")
    began = time.monotonic()
    assert "stopped answering" in failed(url)
    assert time.monotonic() - began < 90
    assert digest_of_another_run(database.url, folder) == undisturbed


@pytest.mark.full
@pytest.mark.parametrize(
    ("about", "after"),
    daily(
        [
            ("model_provider_name", 300_000),
            ("is_eval", 0),
            ("is_eval", 20_000),
            ("argMax", 0),
            ("function_type", 300_000),
            ("AS exact_", 0),
        ],
        1,
    ),
)
def test_ctrl_c_stops_an_export_whose_server_says_nothing(
    database: Database, through: Any, folder: Path, about: str, after: int
) -> None:
    """Whichever stream it is that stalls: nothing may wait for it where no Ctrl-C is heard."""
    through.fail("stall", after=after, about=about)
    said = proxy.stopped_by_ctrl_c(through, database.url_through(through.port), folder)
    assert said.endswith("error: stopped\n")


def without_its_last_batches(answer: bytes) -> bytes:
    """An Arrow stream that ends between two batches, without saying so."""
    reader = pa.ipc.MessageReader.open_stream(answer)
    messages = list(reader)
    assert len(messages) > 2
    sink = pa.BufferOutputStream()
    for message in messages[: len(messages) // 2 + 1]:
        message.serialize_to(sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "about",
    [
        "model_provider_name",
        pytest.param("auxiliary_content", marks=pytest.mark.full),
        pytest.param("AS exact_", marks=pytest.mark.full),
    ],
)
def test_an_answer_that_ends_too_early_in_good_order_is_noticed(
    database: Database, through: Any, failed: Failed, folder: Path, undisturbed: str, about: str
) -> None:
    """What stands between may end an answer as if that were all; pyarrow takes it for the end as well."""
    url = database.url_through(through.port)
    through.fail("change", about=about, changed=without_its_last_batches)
    assert "broke off in the middle of an answer" in failed(url)
    assert through.n_faults == 1
    assert digest_of_another_run(url, folder) == undisturbed


# -- the server ----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_server_that_is_killed_in_the_middle(database: Database, folder: Path, undisturbed: str) -> None:
    url = database.url
    seen = itertools.count()

    def kill(what: str, n_done: int, n_total: int | None) -> None:
        if what.startswith("reading inferences") and n_done and next(seen) == 0:
            database.kill()

    location = Location(SecretStr(url), "a test", True)
    with pytest.raises(ServiceError, match=r"broke off|cannot be reached"):
        export_from(location, ExportRequest(), folder / "s", on_progress=kill)
    assert next(seen) >= 1
    assert list(folder.iterdir()) == []
    assert database.server.is_running
    assert digest_of_another_run(database.url, folder) == undisturbed


@pytest.mark.full
def test_no_server_at_all(database: Database, failed: Failed, folder: Path, undisturbed: str) -> None:
    url = database.url
    database.kill()
    said = failed(url)
    assert "cannot be reached" in said
    assert "trajkit up" in said
    assert digest_of_another_run(database.url, folder) == undisturbed


def test_a_memory_limit_stops_the_export_and_says_which_option_lifts_it(
    database: Database, folder: Path, undisturbed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "--source", database.url, "-o", "s", "--max-server-memory"]
    assert trajkit([*command, "10MB"]) == 4
    printed = capsys.readouterr().err
    assert "stopped a query at its memory limit" in printed
    assert "--max-server-memory" in printed
    assert list(folder.iterdir()) == []
    assert trajkit([*command, "2GB", "--max-threads", "1"]) == 0
    assert open_store(folder / "s").manifest.digest == undisturbed


@pytest.mark.full
def test_a_time_limit_stops_the_export(
    database: Database, failed: Failed, folder: Path, undisturbed: str
) -> None:
    said = failed(f"{database.url}?max_execution_time=0.001&timeout_overflow_mode=throw")
    assert "stopped a query at its limit of time" in said
    assert digest_of_another_run(database.url, folder) == undisturbed


# -- the ways in which the client says that an answer broke off ----------------------------------------------

# the first blocks come, a later one is more than the server has
GROWING = "SELECT repeat('x', if(number < 100000, 10, 20000000)) AS text FROM numbers(100100)"


@pytest.fixture
def limited(database: Database) -> Iterator[Connection]:
    with connected(database.url, Access(max_memory_bytes=100_000_000, max_threads=1)) as connection:
        yield connection


def test_an_arrow_stream_that_breaks_off_says_why(limited: Connection) -> None:
    seen: list[pa.RecordBatch] = []
    with pytest.raises(LimitReached, match="memory limit") as caught:
        seen.extend(limited.stream(GROWING, ONE_COLUMN))
    assert sum(batch.num_rows for batch in seen) > 0
    assert "--max-server-memory" in (caught.value.hint or "")


def test_an_answer_that_was_waited_for_says_why(limited: Connection) -> None:
    with pytest.raises(LimitReached, match="memory limit"):
        limited.query("SELECT groupArray(toString(number)) FROM numbers(100000000)")


@pytest.mark.full
def test_a_stream_that_takes_too_long_says_so(database: Database) -> None:
    slow = "SELECT toString(number) FROM numbers(4000) WHERE sleepEachRow(0.002) = 0"
    with (
        connected(database.url, Access(max_seconds=1, max_threads=1)) as connection,
        pytest.raises(LimitReached, match="limit of time"),
    ):
        list(connection.stream(f"{slow} SETTINGS max_block_size = 100", ONE_COLUMN))


# -- the exporter takes no more than it may, and writes nothing ----------------------------------------------


def test_what_is_asked_for_reaches_the_server(database: Database) -> None:
    access = Access(max_threads=3, max_memory_bytes=123_000_000, max_seconds=77)
    names = ("max_threads", "max_memory_usage", "max_execution_time", "readonly")
    assert settings_of(database.url, names, access) == {
        "max_threads": "3",
        "max_memory_usage": "123000000",
        "max_execution_time": "77",
        "readonly": "2",
    }


def test_the_url_may_hold_settings_of_its_own(database: Database) -> None:
    assert settings_of(f"{database.url}?max_threads=5", ("max_threads", "readonly"))["max_threads"] == "5"


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "method"), [("", "none"), ("?output_format_arrow_compression_method=zstd", "zstd")]
)
def test_what_stays_on_this_machine_is_not_made_small_unless_the_url_says_so(
    database: Database, folder: Path, undisturbed: str, settings: str, method: str
) -> None:
    names = ("output_format_arrow_compression_method", "readonly")
    assert settings_of(f"{database.url}{settings}", names)[names[0]] == method
    if settings:  # `undisturbed` is the export without any
        assert digest_of_another_run(f"{database.url}{settings}", folder) == undisturbed


@pytest.mark.full
@pytest.mark.parametrize("as_strings", daily([0, 1], 1))
def test_ids_may_come_in_other_types_where_the_url_asks_for_them(
    database: Database, folder: Path, undisturbed: str, as_strings: int
) -> None:
    arrow = "output_format_arrow"
    settings = f"{arrow}_fixed_string_as_fixed_byte_array=0&{arrow}_string_as_string={as_strings}"
    assert digest_of_another_run(f"{database.url}?{settings}", folder) == undisturbed


@pytest.mark.full
def test_a_user_who_may_not_change_settings_exports_and_hears_why_a_limit_cannot_be_had(
    database: Database, folder: Path, undisturbed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from urllib.parse import quote

    url = f"http://reader:{quote(READER.password, safe='')}@127.0.0.1:{database.server.port}/tensorzero"
    assert digest_of_another_run(url, folder) == undisturbed
    capsys.readouterr()
    assert trajkit(["export", "--source", url, "-o", "t", "--max-threads", "2"]) == 4
    printed = capsys.readouterr().err
    assert "does not let user 'reader' change its settings: --max-threads cannot be set" in printed
    assert not (folder / "t").exists()


def test_even_a_user_who_may_do_everything_cannot_write_through_it(database: Database) -> None:
    with connected(database.url) as connection:
        for sql in (
            "INSERT INTO CommentFeedback (id) VALUES (generateUUIDv7())",
            "ALTER TABLE JsonInference DELETE WHERE 1",
            "DROP TABLE JsonInference",
            "CREATE TABLE mine (n Int32) ENGINE = Memory",
            "TRUNCATE TABLE ModelInference",
        ):
            with pytest.raises(ServiceError, match="read"):
                connection.query(sql)
        assert connection.query("SELECT count() FROM JsonInference") == [(N_INFERENCES,)]


@pytest.mark.full
def test_the_servers_own_log_knows_no_query_of_an_export_that_is_not_a_select(
    database: Database, folder: Path
) -> None:
    database.log_soon()
    client = clickhouse_connect.get_client(dsn=database.url)
    began = client.command("SELECT toString(now64(6))")
    command = ["export", "--source", database.url, "-o", "s", "--metric", "episode_return", "--min", "0.1"]
    assert trajkit(command) == 0
    assert trajkit(["info", database.url]) == 0
    client.command("SYSTEM FLUSH LOGS")
    kinds = client.query(
        "SELECT query_kind, count() FROM system.query_log"
        " WHERE event_time_microseconds > {began:DateTime64(6)} AND query NOT LIKE 'SYSTEM FLUSH%'"
        " AND http_user_agent LIKE '%clickhouse-connect%' GROUP BY 1",
        parameters={"began": began},
    ).result_rows
    client.close()
    assert {kind for kind, _ in kinds} == {"Select"}
    assert sum(n for _, n in kinds) > 10


# -- secrets -------------------------------------------------------------------------------------------------


def test_a_password_on_the_command_line_is_not_in_the_list_of_processes(
    database: Database, through: Any
) -> None:
    through.fail("stall", about="SELECT")
    password = parse_url(database.url).password
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "info", database.url_through(through.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert through.said.wait(60)
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.kill()
        process.communicate()
    assert b"trajkit\0info\0http://" in shown
    assert password.encode() not in shown
    assert b"***@127.0.0.1" in shown


@pytest.mark.parametrize("debug", [pytest.param(False, marks=pytest.mark.full), True])
def test_no_failure_says_the_password(
    database: Database, through: Any, folder: Path, debug: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even under --debug, where errors show what caused them."""
    password = parse_url(database.url).password
    urls = [
        database.url_through(through.port),
        database.url.replace(password, f"{password}x"),
        database.url.replace(f":{database.server.port}/", ":1/"),
        f"{database.url}?max_memory_usage=1000000",
        database.url.replace("http://", "https://"),
        database.url.replace("/tensorzero", "/elsewhere"),
    ]
    through.fail("reset", after=1_000, about="model_provider_name")
    for url in urls:
        command = [*(["--debug"] if debug else []), "export", "--source", url, "-o", "s"]
        done = warm.trajkit(command, folder, dict(os.environ))
        assert done.returncode != 0, url
        assert password not in done.stdout + done.stderr
        assert ("Traceback" in done.stderr) == debug
    assert list(folder.iterdir()) == []


@pytest.mark.full
def test_exports_side_by_side_do_not_lock_each_other_out(
    database: Database, folder: Path, undisturbed: str
) -> None:
    digests = []

    def export(name: str) -> None:
        digests.append(exported(database.url, folder / name)[1].digest)

    threads = [threading.Thread(target=export, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digests == [undisturbed, undisturbed]
