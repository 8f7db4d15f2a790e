"""A real Postgres on a free loopback port, of the programs that the system has; gone at the end.

The server refuses to run as root: a root session starts it as `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA = Path(__file__).with_name("postgres_schema.sql")
OWNER, OWNER_PASSWORD = "owner", "may do everything"
READER, READER_PASSWORD = "reader", "only looks; p@ss:w/rd?#%"
_START_S = 30.0


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest that Debian has; None when there is none."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3])
    )
    if installed:
        return installed[-1].parent
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


class Server:
    """A running server.

    Args:
        port: Where it listens.
        programs: Its programs.
        process: The server itself.
        log: What it says, every statement among it.
    """

    def __init__(self, port: int, programs: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.port = port
        self.process = process
        self._programs = programs
        self._log = log

    def url(self, database: str, *, is_owner: bool = False) -> str:
        """A URL with user and password, everything in it quoted."""
        user, password = (OWNER, OWNER_PASSWORD) if is_owner else (READER, READER_PASSWORD)
        return f"postgresql://{quote(user)}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def run(self, sql: str, database: str = "postgres") -> str:
        """Run SQL as the owner; what it answered, one row a line."""
        done = subprocess.run(
            [
                self._programs / "psql",
                "-XqAt",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                self.url(database, is_owner=True),
            ],
            input=sql,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def make_database(self, name: str, *, tables: str | None = None) -> str:
        """Make a database anew, with TensorZero's tables that the reader may read; gives the reader's URL.

        Args:
            name: Its name.
            tables: The SQL of its tables; None for `postgres_schema.sql`.
        """
        self.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.run(f'CREATE DATABASE "{name}"')
        self.run(
            (SCHEMA.read_text(encoding="utf-8") if tables is None else tables)
            + f"; GRANT USAGE ON SCHEMA tensorzero TO {READER};"
            f" GRANT SELECT ON ALL TABLES IN SCHEMA tensorzero TO {READER};",
            name,
        )
        return self.url(name)

    def connect(self, database: str) -> Any:
        """A DB-API connection as the owner."""
        from adbc_driver_postgresql import dbapi

        return dbapi.connect(self.url(database, is_owner=True))


@contextlib.contextmanager
def running(tls: tuple[Path, Path] | None = None) -> Iterator[Server]:
    """Start a server with its data in a folder of its own, and end both at the end.

    Args:
        tls: The certificate and the key that it shows; None for plain text only.
    """
    programs = find_programs()
    assert programs is not None
    # not in pytest's folder, which only its owner may enter
    with tempfile.TemporaryDirectory(prefix="trajkit-postgres-") as name:
        folder = Path(name)
        user = "nobody" if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user)
        settings = {} if tls is None else _tls_settings(folder, user, tls)
        with _started(programs, folder, user, settings) as server:
            server.run(f"CREATE ROLE {READER} LOGIN PASSWORD '{READER_PASSWORD}'")
            yield server


@contextlib.contextmanager
def _started(programs: Path, folder: Path, user: str | None, more: dict[str, str]) -> Iterator[Server]:
    secret = folder / "password"
    secret.write_text(OWNER_PASSWORD, encoding="utf-8")
    made = [programs / "initdb", "-D", folder / "data", "-U", OWNER, f"--pwfile={secret}", "-E", "UTF8"]
    quickly = [*made, "-A", "scram-sha-256", "--no-sync", "--locale=C"]
    subprocess.run(quickly, user=user, cwd=folder, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "max_wal_size": "2GB",
        "log_statement": "all",
        **more,
    }
    command = [programs / "postgres", "-D", folder / "data", *(f"-c{k}={v}" for k, v in settings.items())]
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, user=user, cwd=folder, stdout=stream, stderr=stream)
    try:
        server = Server(port, programs, process, log)
        _wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)  # at once, and it takes its children along
        process.wait()


def _tls_settings(folder: Path, user: str | None, files: tuple[Path, Path]) -> dict[str, str]:
    """The server reads only a key that no other user may read, so it gets its own."""
    certificate, key = folder / "server.crt", folder / "server.key"
    for source, goal in zip(files, (certificate, key), strict=True):
        goal.write_bytes(source.read_bytes())
        goal.chmod(0o600)
        if user is not None:
            shutil.chown(goal, user)
    return {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}


def _wait(server: Server) -> None:
    ready = [server._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
    until = time.monotonic() + _START_S
    while subprocess.run(ready, check=False).returncode != 0:
        assert server.process.poll() is None, server.log()
        assert time.monotonic() < until, server.log()
        time.sleep(0.05)
