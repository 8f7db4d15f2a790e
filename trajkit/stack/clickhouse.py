"""Run a real ClickHouse server from a Python wheel, with its data in a folder and a loopback port."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib.util
import json
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import SecretStr, ValidationError

from trajkit._core.files import write_json, write_text
from trajkit.errors import MissingExtra, ServiceError, StackError
from trajkit.schema.base import Model
from trajkit.stack import process as processes
from trajkit.stack.clickhouse_engine import GRANTS
from trajkit.stack.process import Process

__all__ = ["ClickHouse", "User", "delete_data", "is_data_folder"]

DATABASE = "tensorzero"
MARK = "clickhouse.json"
"""File that marks a data folder of trajkit: user, password, port and process of the server."""
HOST = "127.0.0.1"
"""The only address that it listens on, and the only one that it accepts connections from."""
_MOST_PARTS = 100_000
"""Parts of a table before the server delays inserts. The gateway adds a part with each inference. Parts are
merged soon afterwards, and a delay would let the gateway refuse feedback on a new episode."""
_CONFIG = """<clickhouse>
  <http_port>{port}</http_port>
  <listen_host>{host}</listen_host>
  <users_config>users.xml</users_config>
  <merge_tree>
    <parts_to_delay_insert>{most_parts}</parts_to_delay_insert>
    <parts_to_throw_insert>{most_parts}</parts_to_throw_insert>
  </merge_tree>
</clickhouse>
"""
_USERS = """<clickhouse>
  <profiles><default/><readonly><readonly>1</readonly></readonly></profiles>
  <quotas><default/></quotas>
  <users>{users}
  </users>
</clickhouse>
"""
_USER = """
    <{name}>
      {password}
      <networks><ip>{host}</ip></networks>
      <profile>{profile}</profile>
      <quota>default</quota>{grants}
    </{name}>"""


class _Mark(Model):
    name: str
    password: str
    port: int
    process: Process | None = None


class ClickHouse:
    """A local ClickHouse server. As a context manager it is killed at the end; its data stays."""

    def __init__(self, folder: Path, mark: _Mark) -> None:
        self.folder = folder
        self.port = mark.port
        self.user = User(mark.name, mark.password)
        self._process = mark.process

    @classmethod
    def start(cls, folder: Path, *, users: Sequence[User] = (), timeout_s: float = 30.0) -> Self:
        """Start a server on a new folder or on existing data. It takes about half a second.

        Args:
            folder: Data folder; created if needed. It also keeps the server's user and password (mode 0600)
                and its port, which is used again when it is free.
            users: Further users, besides the server's own, which has all rights.
            timeout_s: Maximum seconds for the start.

        Raises:
            StackError: A server already runs on this folder, it did not start, or the system is Windows.
            MissingExtra: The package with the engine is not installed.
        """
        _check_system()
        folder = folder.resolve()
        _make_folder(folder)
        with _alone_in(folder):
            mark = _read_mark(folder)
            if mark is not None and mark.process is not None and mark.process.is_running:
                raise StackError(
                    f"a ClickHouse server already runs on {folder} (process {mark.process.pid})",
                    hint="stop it first with `trajkit down`, or choose another folder",
                )
            mark = _Mark(
                name=mark.name if mark else "trajkit",
                password=mark.password if mark else secrets.token_hex(24),
                port=_free_port(mark.port if mark else 0),
            )
            own = User(mark.name, mark.password)
            write_configuration(folder, port=mark.port, users=[own, *users])
            write_json(folder / MARK, mark.model_dump(mode="json"), mode=0o600)
            server = cls(folder, mark)
            server._process, _ = processes.start_module(
                "trajkit.stack.clickhouse_engine",
                [str(folder)],
                log=folder / "server.log",
                is_ready=lambda _: server._answers(),
                what=f"ClickHouse on {folder}",
                timeout_s=timeout_s,
                environment={"TZ": "UTC"},  # the engine ignores the setting `timezone`
            )
            started = mark.model_copy(update={"process": server._process})
            write_json(folder / MARK, started.model_dump(mode="json"), mode=0o600)
            return server

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """Return the server that runs on a folder; None when there is none."""
        mark = _read_mark(folder.resolve())
        if mark is None or mark.process is None or not mark.process.is_running:
            return None
        return cls(folder.resolve(), mark)

    @property
    def process(self) -> Process:
        """The process of the server."""
        assert self._process is not None
        return self._process

    @property
    def url(self) -> str:
        """URL of TensorZero's database, with the password."""
        return self.url_for(self.user)

    @property
    def secret_url(self) -> SecretStr:
        """The same URL, hidden from logs."""
        return SecretStr(self.url)

    def url_for(self, user: User, *, database: str = DATABASE) -> str:
        """Return the URL of a database for a user, with the password."""
        return f"http://{user.name}:{user.password}@{HOST}:{self.port}/{database}"

    @property
    def is_running(self) -> bool:
        """Whether the server is alive."""
        return self.process.is_running

    def ask(self, sql: str, *, user: User | None = None) -> str:
        """Run one statement and return the answer as tab-separated text.

        Raises:
            ServiceError: The server cannot be reached, or refuses.
        """
        who = user or self.user
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        headers = {"X-ClickHouse-User": who.name, "X-ClickHouse-Key": who.password}
        try:
            connection.request("POST", "/", sql.encode(), headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(f"no ClickHouse answers at {HOST}:{self.port}: {error}") from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ServiceError(f"ClickHouse refused: {text.strip()}")
        return text

    def _answers(self) -> bool | None:
        try:
            return self.ask("SELECT 1") == "1\n" or None
        except ServiceError:
            return None

    def stop(self) -> bool:
        """End the server by its process id; return whether it ran. All acknowledged writes are on disk."""
        return processes.end(self.process)

    def kill(self) -> bool:
        """Kill the server, as in a crash; return whether it ran."""
        return processes.end(self.process, grace_s=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        """Return its address without the password."""
        return f"ClickHouse({HOST}:{self.port}, folder={str(self.folder)!r})"


def is_data_folder(folder: Path) -> bool:
    """Check whether a server of trajkit has, or had, its data in this folder."""
    return (folder / MARK).exists()


def delete_data(folder: Path) -> None:
    """Delete the data of a server in a folder, and leave other files alone.

    Raises:
        StackError: The folder is not a server's data folder, or a server runs on it.
    """
    if not is_data_folder(folder):
        raise StackError(f"{folder} is not a trajkit database, so it was not deleted")
    if ClickHouse.find(folder) is not None:
        raise StackError(f"a ClickHouse server runs on {folder}", hint="stop it first with `trajkit down`")
    shutil.rmtree(folder / "data", ignore_errors=True)
    for name in ("config.xml", "users.xml", "server.log", f"{MARK}.lock", MARK):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other files may be in the folder
        folder.rmdir()


def _check_system() -> None:
    if sys.platform == "win32":
        raise StackError(
            "there is no ClickHouse engine for Windows in a Python wheel",
            hint="set TENSORZERO_CLICKHOUSE_URL to a server elsewhere, or run trajkit inside WSL",
        )
    if importlib.util.find_spec("chdb") is None:  # not need(): importing it opens a database in this process
        raise MissingExtra(
            "this needs the package chdb-core, which is not installed", hint="pip install 'trajkit[stack]'"
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        has_other_files = any(folder.iterdir()) and not is_data_folder(folder)
    except OSError as error:
        raise StackError(f"{folder} cannot hold a database: {error}", hint="choose another folder") from error
    if has_other_files:
        raise StackError(f"{folder} holds something other than trajkit data", hint="choose an empty folder")


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where nothing gets this far

    with (folder / f"{MARK}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError(f"another command is starting ClickHouse on {folder} right now") from error
        yield


def _read_mark(folder: Path) -> _Mark | None:
    try:
        return _Mark.model_validate(json.loads((folder / MARK).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError) as error:
        raise StackError(f"{folder / MARK} cannot be read: {error}") from error


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise StackError(f"no port is free on {HOST}")


class User(NamedTuple):
    """A user of the database."""

    name: str
    password: str
    is_readonly: bool = False


def write_configuration(folder: Path, *, port: int, users: Sequence[User]) -> None:
    """Write the server's configuration: its address and its users.

    Raises:
        StackError: A user's name or password is invalid.
    """
    # The engine logs itself in as `default`, which therefore has no password. Every local user can
    # do the same, so it has only the rights that the start needs.
    grants = "".join(f"<query>{grant}</query>" for grant in GRANTS)
    default = _USER.format(
        name="default",
        password="<password></password>",
        host=HOST,
        profile="default",
        grants=f"\n      <grants>{grants}</grants>",
    )
    named = [_user_xml(user) for user in users]
    write_text(folder / "users.xml", _USERS.format(users="".join([default, *named])), mode=0o600)
    write_text(folder / "config.xml", _CONFIG.format(port=port, host=HOST, most_parts=_MOST_PARTS))


def _user_xml(user: User) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", user.name) or user.name == "default" or not user.password:
        raise StackError(f"{user.name!r} is not a valid user: small letters, digits and _, with a password")
    digest = hashlib.sha256(user.password.encode()).hexdigest()
    return _USER.format(
        name=user.name,
        password=f"<password_sha256_hex>{digest}</password_sha256_hex>",
        host=HOST,
        profile="readonly" if user.is_readonly else "default",
        grants="",
    )
