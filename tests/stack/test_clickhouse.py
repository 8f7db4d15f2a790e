from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.conftest import READER
from trajkit.errors import ServiceError, StackError
from trajkit.stack.clickhouse import ClickHouse, User, delete_data

DEFAULT = User("default", "")


@pytest.fixture(scope="session", autouse=True)
def table(database: ClickHouse) -> None:
    database.ask("CREATE DATABASE trial")
    database.ask("CREATE TABLE trial.fact (n Int32) ENGINE = MergeTree ORDER BY n")
    database.ask("INSERT INTO trial.fact VALUES (42)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "db"
    if server := ClickHouse.find(tmp_path / "db"):
        server.kill()


def test_it_starts_answers_and_stops_and_its_data_is_deleted_without_other_files(folder: Path) -> None:
    started = time.monotonic()
    server = ClickHouse.start(folder)
    assert time.monotonic() - started < 30
    assert server.ask("SELECT 6 * 7") == "42\n"
    with pytest.raises(StackError, match="a ClickHouse server runs on"):
        delete_data(folder)
    assert server.stop() is True
    with pytest.raises(ProcessLookupError):
        os.kill(server.process.pid, 0)
    assert server.stop() is False
    (folder / "note.txt").write_text("mine")
    delete_data(folder)
    assert [path.name for path in folder.iterdir()] == ["note.txt"]
    with pytest.raises(StackError, match="is not a trajkit database"):
        delete_data(folder)


def test_it_is_a_clickhouse_that_keeps_time_in_utc(database: ClickHouse) -> None:
    version, zone = database.ask("SELECT version(), timezone()").split()
    assert int(version.split(".")[0]) >= 26
    assert zone == "UTC"


def test_other_commands_find_it_by_its_folder(database: ClickHouse) -> None:
    found = ClickHouse.find(database.folder)
    assert found.url == f"http://trajkit:{database.user.password}@127.0.0.1:{database.port}/tensorzero"
    assert found.ask("SELECT n FROM trial.fact") == "42\n"


def test_its_password_is_random_readable_by_the_owner_only_and_not_in_its_repr(database: ClickHouse) -> None:
    assert len(database.user.password) == 48
    assert database.user.password not in repr(database)
    for name in ("clickhouse.json", "users.xml"):
        assert stat.S_IMODE((database.folder / name).stat().st_mode) == 0o600
    assert database.user.password not in (database.folder / "users.xml").read_text()


def test_a_wrong_password_is_refused_without_showing_it(database: ClickHouse) -> None:
    with pytest.raises(ServiceError, match="AUTHENTICATION_FAILED") as caught:
        database.ask("SELECT 1", user=User("trajkit", "not-the-password"))
    assert "not-the-password" not in str(caught.value)


def test_a_readonly_user_reads_and_does_not_write(database: ClickHouse) -> None:
    assert database.ask("SELECT n FROM trial.fact", user=READER) == "42\n"
    with pytest.raises(ServiceError, match="READONLY"):
        database.ask("INSERT INTO trial.fact VALUES (43)", user=READER)
    assert database.ask("SELECT count() FROM trial.fact") == "1\n"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM trial.fact",
        "SELECT n FROM merge('trial', 'fact')",
        "SELECT * FROM remote('127.0.0.1', trial.fact)",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:9/', 'LineAsString')",
        "SELECT * FROM executable('cat', 'LineAsString', 'line String')",
        "SELECT * FROM system.users",
        "SHOW CREATE TABLE trial.fact",
        "INSERT INTO trial.fact VALUES (43)",
        "INSERT INTO FUNCTION file('/tmp/trajkit-must-not-exist', 'CSV') VALUES (1)",
        "INSERT INTO FUNCTION url('http://127.0.0.1:9/', 'CSV') VALUES (1)",
        "CREATE TABLE trial.other (n Int32) ENGINE = Memory",
        "CREATE TEMPORARY TABLE other (n Int32)",
        "CREATE DATABASE other",
        "CREATE USER other",
        "ALTER TABLE trial.fact DELETE WHERE 1",
        "TRUNCATE TABLE trial.fact",
        "DROP TABLE trial.fact",
        "DROP DATABASE trial",
        "BACKUP TABLE trial.fact TO File('/tmp/trajkit-must-not-exist')",
        "SYSTEM SHUTDOWN",
        "GRANT ALL ON *.* TO default",
    ],
)
def test_the_user_without_a_password_can_read_no_table_and_write_none(
    database: ClickHouse, statement: str
) -> None:
    # merge() hides tables that one may not read, and then finds none
    denied = "CANNOT_EXTRACT_TABLE_STRUCTURE" if "merge" in statement else "ACCESS_DENIED"
    with pytest.raises(ServiceError, match=denied):
        database.ask(statement, user=DEFAULT)
    assert database.ask("SELECT n FROM trial.fact") == "42\n"
    assert not Path("/tmp/trajkit-must-not-exist").exists()


def test_the_user_without_a_password_sees_no_names(database: ClickHouse) -> None:
    assert database.ask("SHOW DATABASES", user=DEFAULT) == "system\n"
    assert database.ask("SHOW TABLES FROM trial", user=DEFAULT) == ""


def test_it_listens_on_the_loopback_address_only(database: ClickHouse) -> None:
    # a server on every address would answer on this one too, which is also this machine
    with pytest.raises(OSError, match=r"refused|unreachable|assign|timed out"):
        socket.create_connection(("127.0.0.2", database.port), timeout=2)


def test_a_second_start_on_the_same_folder_says_so(database: ClickHouse) -> None:
    with pytest.raises(StackError) as caught:
        ClickHouse.start(database.folder)
    assert caught.value.message == (
        f"a ClickHouse server already runs on {database.folder} (process {database.process.pid})"
    )
    assert database.ask("SELECT n FROM trial.fact") == "42\n"


@pytest.mark.full
def test_what_it_acknowledged_is_there_after_it_was_killed(folder: Path) -> None:
    first = ClickHouse.start(folder)
    first.ask("CREATE DATABASE trial")
    first.ask("CREATE TABLE trial.fact (n Int32) ENGINE = MergeTree ORDER BY n")
    for n in range(20):
        first.ask(f"INSERT INTO trial.fact VALUES ({n})")
    assert first.kill() is True
    assert not first.is_running
    assert ClickHouse.find(folder) is None
    with pytest.raises(ServiceError, match=f"no ClickHouse answers at 127.0.0.1:{first.port}"):
        first.ask("SELECT 1")

    second = ClickHouse.start(folder)
    assert second.ask("SELECT count(), sum(n) FROM trial.fact") == "20\t190\n"
    assert second.url == first.url  # the same user, password and port: what remembers the URL still works


@pytest.mark.full
def test_it_takes_another_port_when_its_own_is_taken(folder: Path) -> None:
    first = ClickHouse.start(folder)
    first.kill()
    with socket.create_server(("127.0.0.1", first.port)):
        second = ClickHouse.start(folder)
        assert second.port != first.port
        assert second.ask("SELECT 1") == "1\n"


@pytest.mark.full
def test_when_it_does_not_start_the_error_shows_its_log(folder: Path) -> None:
    with ClickHouse.start(folder) as server:
        assert server.is_running
    assert not server.is_running
    (folder / "data").rename(folder / "away")
    (folder / "data").write_text("this is no folder")
    with pytest.raises(StackError, match=rf"ClickHouse on {folder} did not start:\n  ") as caught:
        ClickHouse.start(folder)
    assert caught.value.hint == f"its log: {folder / 'server.log'}"
    assert ClickHouse.find(folder) is None


def test_it_does_not_move_into_a_folder_that_holds_something_else_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StackError, match="holds something other"):
        ClickHouse.start(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(StackError, match="cannot hold a database"):
        ClickHouse.start(tmp_path / "thesis.txt")


@pytest.mark.parametrize("user", [User("default", "x"), User("Ann", "x"), User("a><b", "x"), User("ann", "")])
def test_a_user_that_cannot_be_is_refused_before_anything_starts(folder: Path, user: User) -> None:
    with pytest.raises(StackError, match="is not a valid user"):
        ClickHouse.start(folder, users=[user])
    assert ClickHouse.find(folder) is None
