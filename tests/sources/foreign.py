"""Systems that do not enter trajkit's environment: a virtual environment of their own, and programs in it.

The thirty episodes are played in trajkit's process, where the world is. A client that is installed elsewhere
is a small program that reads requests from its standard input, and answers each on its standard output: one
line of JSON each way.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def environment(folder: Path, *requirements: Sequence[str]) -> Path:
    """Make a virtual environment, and return its Python; one that is complete already is used as it is.

    Args:
        folder: Where it is made.
        requirements: Arguments of `pip install`, one call each.
    """
    python = folder / "bin" / "python"
    done = folder / "installed.json"
    if done.is_file() and json.loads(done.read_text(encoding="utf-8")) == [list(one) for one in requirements]:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    for one in requirements:
        subprocess.run([python, "-m", "pip", "install", "-q", *one], check=True)
    done.write_text(json.dumps(requirements), encoding="utf-8")
    return python


def program(python: Path, name: str) -> str:
    """A program that is installed beside a Python."""
    return str(python.with_name(name))


@contextmanager
def client(
    python: Path, script: Path, settings: Mapping[str, str] | None = None, *arguments: str | Path
) -> Iterator[Callable[[Mapping[str, Any]], Any]]:
    """Run a program of the other environment; the value sends it a request and returns its answer.

    Args:
        python: Python of that environment.
        script: A program that answers each line of JSON with one line of JSON.
        settings: Environment variables that it needs; of trajkit's own `PYTHONPATH` is left out.
        arguments: Those of its command line.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        [python, script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=script.parent,
        env={**plain, **(settings or {})},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def told(request: Mapping[str, Any]) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"{script.name} ended with status {process.wait(timeout=10)}"
        return json.loads(line)

    try:
        yield told
        process.stdin.close()
        assert process.wait(timeout=60) == 0, f"{script.name} failed"
    finally:
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()


def shrink(database: Path, tables: Sequence[str]) -> None:
    """Drop every table of an SQLite database but these, and all indexes."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA foreign_keys = OFF")
        made = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE sql NOT NULL ORDER BY type DESC"
        )
        for kind, name in made.fetchall():
            if name not in tables and not name.startswith("sqlite_"):
                connection.execute(f'DROP {kind} IF EXISTS "{name}"')
        connection.commit()
        connection.execute("VACUUM")


def changed(database: Path, goal: Path, *statements: str) -> Path:
    """Write a copy of an SQLite database in which something is different."""
    goal.write_bytes(database.read_bytes())
    with closing(sqlite3.connect(goal)) as connection:
        for one in statements:
            connection.execute(one)
        connection.commit()
    return goal


def packed(file: Path, goal: Path) -> None:
    """Compress a file, the same bytes each time."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    goal.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))


def unpacked(file: Path, goal: Path) -> Path:
    """Write what a compressed file holds, and return where it is."""
    goal.write_bytes(gzip.decompress(file.read_bytes()))
    return goal


@contextmanager
def forwarded(url: str, goal: Path, *, hide: str) -> Iterator[str]:
    """Forward to a server what is asked at this address, and record it for `replayed`.

    Args:
        url: The server.
        goal: The file that is written.
        hide: A path of this machine, which is left out of what is recorded.
    """
    said: list[dict[str, Any]] = []

    def answer(method: str, path: str, body: str) -> tuple[int, str]:
        data = body.encode() or None
        request = urllib.request.Request(
            url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as got:
                found = got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            found = error.code, error.read().decode()
        text = found[1].replace(hide, "")
        row = {"method": method, "path": path, "body": body, "status": found[0], "answer": text}
        said.append(row)
        return found

    with answering(answer) as address:
        yield address
    lines = "".join(json.dumps(one) + "\n" for one in said).encode()
    goal.parent.mkdir(parents=True, exist_ok=True)
    goal.write_bytes(gzip.compress(lines, 9, mtime=0))


@contextmanager
def replayed(file: Path) -> Iterator[str]:
    """Answer as the server did when `forwarded` recorded it; anything else is HTTP 404."""
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
    known = {(row["method"], row["path"], row["body"]): (row["status"], row["answer"]) for row in rows}
    with answering(lambda *asked: known.get(asked, (404, "not recorded"))) as address:
        yield address


@contextmanager
def answering(answer: Callable[[str, str, str], tuple[int, str]]) -> Iterator[str]:
    """Run a server that answers JSON: given method, path and body, its status and text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, text = answer(self.command, self.path, body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Retry-After", "0")  # where it is busy
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
