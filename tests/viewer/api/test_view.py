"""`trajkit view` and `view` as they are used: an address is printed, and a signal ends it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.pages import blocks, printed
from trajkit.cli.main import run
from trajkit.commands.view import view
from trajkit.errors import QueryError, RequestError, StackError

PAGE = (Path(__file__).parents[3] / "docs" / "view.md").read_text(encoding="utf-8")


@pytest.fixture
def served(tmp_path: Path, ten_store: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "view", str(ten_store), "--no-browser", "--json"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", daily([signal.SIGTERM, signal.SIGINT], 1))
def test_the_command_serves_until_a_signal_and_ends_well(
    served: subprocess.Popen[str], number: signal.Signals
) -> None:
    said = json.loads(served.stdout.readline())
    assert said["pid"] == served.pid
    with urllib.request.urlopen(f"{said['url']}api/stores") as answered:
        assert json.load(answered)["stores"][0]["name"] == "ten"
    os.kill(served.pid, number)
    _, talk = served.communicate(timeout=30)
    assert served.returncode == 0
    assert talk == "10 episodes; Ctrl-C stops the server\nended\n"


def test_the_command_writes_a_file(
    ten_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = tmp_path / "page.html"
    assert run(["view", str(ten_store), "--html", str(goal), "--limit", "4"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{goal}  4 episodes  ")
    assert said.err == "4 of 10 episodes: the first 4 of 10 were asked for\n"
    assert run(["view", str(ten_store), "--html", str(goal)]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--limit", "3"], 2, "--limit is for --html"),
        (["--html", "x.html", "--port", "80"], 2, "--port is for a page that is served"),
        (["--html", "x.html", "--browser"], 2, "--browser is for a page that is served"),
        (["--port", "70000"], 2, "70000 is not in the range"),
        (["--where", "nonsense"], 2, "no column 'nonsense'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    ten_store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    assert run(["view", str(ten_store), *options]) == code
    assert said in capsys.readouterr().err


def test_without_a_store_the_last_one_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["view", "--html", "page.html"]) == 2
    assert "no STORE given" in capsys.readouterr().err


def test_in_python_it_serves_beside_what_goes_on_and_under_an_event_loop(ten_store: Path) -> None:
    async def look() -> Any:
        with view(ten_store, where="seed > 7") as viewer:
            address = viewer.url.partition("#")[0]
            ask = urllib.request.urlopen(f"{address}api/episodes?where=seed%20%3E%207")
            assert viewer.url == f"{address}#/?where=seed%20%3E%207"
            assert viewer._repr_html_().startswith('<a href="http://127.0.0.1:')
            with ask:
                return json.load(ask)

    assert asyncio.run(look())["total"] == 2


def test_closing_ends_the_wait_of_another_thread(ten_store: Path) -> None:
    viewer = view(ten_store)
    waiting = threading.Thread(target=viewer.wait)
    waiting.start()
    viewer.close()
    waiting.join(timeout=10)
    assert not waiting.is_alive()


def test_what_python_refuses(ten_store: Path) -> None:
    with view(ten_store) as viewer:
        port = int(viewer.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(StackError, match=f"127.0.0.1:{port}"):
            view(ten_store, port=port)
    with pytest.raises(RequestError, match="--limit is for --html"):
        view(ten_store, limit=3)
    with pytest.raises(QueryError, match="no column 'nonsense'"):
        view(ten_store, where="nonsense = 1")


def test_the_documentation_writes_the_file_that_it_shows(tmp_path: Path) -> None:
    printed(PAGE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["goto.html"]


def test_the_python_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(PAGE, "python")
    exec(compile(code, "view.md", "exec"), {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
