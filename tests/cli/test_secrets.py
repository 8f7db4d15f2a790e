"""Keys and passwords through the command: a service that repeats them puts them nowhere."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from tests import warm
from tests.cli.jobs import an_episode
from tests.matrix import daily
from tests.rollouts.loopback import Reply, Server, refused, said, serve
from trajkit.cli.main import run
from trajkit.stack.loopback import LoopbackHandler, LoopbackServer
from trajkit.store.writer import write_episodes

ROOT = Path(__file__).parents[2]

KEY = "sk-it's-\"a\\key<0123456789"
PASSWORD = "p4ss:w%C3%B6rd"
ROLLOUT = ["rollout", "babyai", "--task", "goto", "--episodes", "1", "--policy", "openai", "--model", "m"]


def trajkit(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if not name.endswith(("_KEY", "_TOKEN", "_URL"))}
    return warm.trajkit(command, folder, clean | {"PYTHONPATH": str(ROOT)} | environment)


def trajkit_here(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, where nothing has to be imported again."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.chdir(folder)
        for name in os.environ:
            if name.endswith(("_KEY", "_TOKEN", "_URL")):
                patch.delenv(name)
        for name, text in environment.items():
            patch.setenv(name, text)
        code = run([*command])
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def everything(folder: Path, done: subprocess.CompletedProcess[str]) -> str:
    """What was printed and every file that there is, Parquet as its values."""
    texts = [done.stdout, done.stderr]
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            texts.append(str(pq.read_table(path).to_pylist()))
        elif path.is_file():
            texts.append(path.read_bytes().decode("utf-8", "replace"))
        texts.append(path.name)
    return "\n".join(texts)


def assert_absent(secret: str, text: str) -> None:
    forms = {secret, repr(secret)[1:-1], repr(secret.encode())[2:-1], json.dumps(secret)[1:-1]}
    forms |= {quote(secret), quote(secret, safe=""), html.escape(secret)}
    forms |= {json.dumps(json.dumps(secret))[3:-3], base64.b64encode(secret.encode()).decode()}
    for form in forms:
        assert form not in text, text[max(0, text.find(form) - 300) :][:600]


@contextlib.contextmanager
def echoes(reply: Callable[[str], Reply]) -> Iterator[Server]:
    """A server that answers with what it was authorised by."""

    def answer(body: dict[str, Any], n: int) -> Reply:
        return reply(server.asked[n].headers["authorization"].removeprefix("Bearer "))

    with serve(answer) as server:
        yield server


REPLIES: dict[str, Callable[[str], Any]] = {
    "message": lambda key: Reply(refused(f"no such key: {key}"), 401),
    "body": lambda key: Reply({"detail": {"headers": [repr(key), quote(key)]}}, 500),
    "html": lambda key: Reply(f"<p>{html.escape(key)}".encode(), 403),
    "unreadable": lambda key: Reply({"choices": [], "id": key}),
}


@pytest.mark.parametrize(
    ("name", "debug"),
    daily(itertools.product(REPLIES, (False, True)), [("message", False), ("body", True)]),
)
def test_an_error_that_repeats_the_key_shows_and_keeps_it_nowhere(
    tmp_path: Path, name: str, debug: bool
) -> None:
    with echoes(REPLIES[name]) as server:
        asked = (*ROLLOUT, "--model-url", server.url)
        given = {"OPENAI_API_KEY": f"{KEY}\n"}
        call, flags = (trajkit, ["--debug"]) if debug else (trajkit_here, [])
        done = call(tmp_path, *flags, *asked, **given)
        assert done.returncode != 0
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        assert_absent(KEY, everything(tmp_path, done))
        if name == "message" and not debug:
            address = server.url.replace("://", f"://me:{PASSWORD}@")
            again = trajkit_here(tmp_path, *ROLLOUT, "--new-run", "--model-url", address, OPENAI_API_KEY=KEY)
            assert again.returncode != 0
            assert_absent(PASSWORD, everything(tmp_path, again))


def test_an_answer_that_repeats_the_key_is_stored_without_it_and_counted(tmp_path: Path) -> None:
    def reply(key: str) -> Any:
        answer = said(json.dumps({"action": f"turn left {key}"}), refusal=key)
        facts = {"id": key, "model": f"m-{key}", "system_fingerprint": key}
        return Reply({**answer, **facts}, 200, {"X-Key": key})

    with echoes(reply) as server:
        command = [*ROLLOUT, "--model-url", server.url, "--max-calls", "70", "-o", "store", "--yes"]
        done = trajkit_here(tmp_path, *command, OPENAI_API_KEY=f" {KEY}\n")
    assert done.returncode == 0, done.stderr
    assert_absent(KEY, everything(tmp_path, done))
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    n_hidden = manifest["lineage"][0]["arguments"]["n_keys_hidden"]
    assert n_hidden >= 3 * manifest["counts"]["n_steps"]
    assert f"answers repeated a key {n_hidden:,} times: it is hidden there" in done.stderr
    rows = pq.read_table(next((tmp_path / "store" / "steps").glob("*.parquet"))).to_pylist()
    assert rows[0]["model_name"] == "m-***"
    assert "turn left ***" in str(rows[0]["completion"])


@pytest.mark.parametrize("key", daily(["sk-\x1b[2Jbad-key-1", "sk-bäd-key-1", "sk-bad\nkey-1"], 1))
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    asked = (*ROLLOUT, "--model-url", "http://127.0.0.1:1/v1")
    for done, code in (
        (trajkit_here(tmp_path, *asked, OPENAI_API_KEY=key), 2),
        (trajkit(tmp_path, "--debug", *asked, OPENAI_API_KEY=key), 1),
    ):
        assert "OPENAI_API_KEY has a character that no key has, at position" in done.stderr
        assert done.returncode == code
        assert_absent(key, everything(tmp_path, done))
        assert "key-1" not in done.stderr


RECIPE = """
version: 1
name: play
needs: nothing
minutes: 1
cost: none
leaves: nothing
steps:
  play:
    verb: rollout
    env_id: babyai
    task: [goto]
    episodes: 1
    policy: openai
    model: m
    model_url: URL
    output: store
"""


def test_a_failed_step_of_a_recipe_is_recorded_without_the_key(tmp_path: Path) -> None:
    with echoes(lambda key: Reply(refused(f"no such key: {key}"), 401)) as server:
        (tmp_path / "recipe.yaml").write_text(RECIPE.replace("URL", server.url))
        done = trajkit(tmp_path, "run", "recipe.yaml", "-o", "run", "--yes", OPENAI_API_KEY=f"{KEY}\n")
    assert server.asked, done.stderr
    assert done.returncode != 0
    assert "***" in everything(tmp_path / "run", done)
    assert_absent(KEY, everything(tmp_path, done))


@pytest.mark.parametrize(
    ("line", "secret"),
    daily(
        [
            ("sourc = 'http://me:s3cr3t-of-mine@host:8123/db'", "s3cr3t-of-mine"),
            ("api_key = 'sk-1234567890-abcdef'", "sk-1234567890-abcdef"),
            ("source = ['http://me:s3cr3t-of-mine@host/db']", "s3cr3t-of-mine"),
            ("source = 'postgresql://me:s3cr3t-of-mine@127.0.0.1:1/db'", "s3cr3t-of-mine"),
            ("source = 'ftp://me:s3cr3t-of-mine@127.0.0.1:1/db'", "s3cr3t-of-mine"),
            ("source = 'http://me:s3cr3t-of-mine@[127.0.0.1:1/db'", "s3cr3t-of-mine"),
            ("source = 'http://me:s3cr3t-of-mine@127.0.0.1:x1/db'", "s3cr3t-of-mine"),
            ("[[reserved]]\nenv = 'babyai'\ntasks = 'hunter2-hunter2'", "hunter2-hunter2"),
        ],
        2,
    ),
)
def test_a_value_of_the_project_file_is_in_no_traceback(tmp_path: Path, line: str, secret: str) -> None:
    (tmp_path / "trajkit.toml").write_text(line)
    for command in (["export", "-o", "s"], ["doctor"]):
        done = trajkit(tmp_path, "--debug", *command)
        assert done.returncode != 0
        assert secret not in done.stdout + done.stderr
        assert secret[:6] not in done.stdout + done.stderr


@contextlib.contextmanager
def listening(answer: Callable[[str, str], tuple[int, str]]) -> Iterator[str]:
    """A server that says the status and the text that a path and a key give; the text in a header too."""

    class Echo(LoopbackHandler):
        def do_GET(self) -> None:
            self.read_body(1 << 24)
            key = (self.headers["Authorization"] or "").removeprefix("Bearer ")
            status, text = answer(self.path, key)
            self.send(status, "text/plain", text.encode(), {"X-Error-Message": " ".join(text.split())})

        do_POST = do_GET

    with LoopbackServer(0, Echo) as server:
        server.start()
        yield server.url


@pytest.mark.full
@pytest.mark.parametrize(("is_file", "debug"), daily([(True, False), (False, True)], 1))
def test_a_hub_that_repeats_the_token_shows_it_nowhere(tmp_path: Path, is_file: bool, debug: bool) -> None:
    told: list[str] = []

    def answer(path: str, key: str) -> tuple[int, str]:
        told.append(key)
        return 403, f"{key!r} may not: {json.dumps({'Authorization': 'Bearer ' + key})}"

    (tmp_path / "token").write_text(f"{KEY}\n")
    given = {"HF_TOKEN_PATH": str(tmp_path / "token")} if is_file else {"HF_TOKEN": f"{KEY}\n"}
    write_episodes(tmp_path / "work" / "mine", [an_episode("a")], kind="test")
    flag = ["--debug"] if debug else []
    with listening(answer) as url:
        given["HF_ENDPOINT"] = url
        for command in (["push", "mine", "me/data", "--yes"], ["pull", "me/data", "-o", "back"]):
            done = trajkit(tmp_path / "work", *flag, *command, **given)
            assert done.returncode == (1 if debug else 4), done.stderr
            assert "***" in done.stderr
            assert_absent(KEY, everything(tmp_path / "work", done))
    assert KEY in told
    assert set(told) <= {KEY, ""}
    given.pop("HF_TOKEN", None)
    (tmp_path / "token").write_text("hf_b\x1bad_token")
    done = trajkit(tmp_path / "work", *command, **{**given, "HF_TOKEN_PATH": str(tmp_path / "token")})
    assert done.returncode == 2
    assert "the token of the Hub" in done.stderr
    assert "ad_token" not in done.stderr


def test_an_address_with_a_password_is_written_nowhere(tmp_path: Path) -> None:
    address = f"http://me:{PASSWORD}@127.0.0.1:1"
    write_episodes(tmp_path / "mine", [an_episode("a")], kind="test")
    rollout = [*ROLLOUT, "--model-url", f"{address}/v1"]
    model = ["register", "m", "--name", "n", "--api-base", f"{address}/v1", "--emit", "client"]
    for command in (
        model,
        ["push", "mine", "me/data", "--yes"],
        ["info", "--database", f"{address}/db"],
        ["export", "--source", f"{address}/db", "-o", "s"],
        ["export", "--source", f"postgresql://me:{PASSWORD}@127.0.0.1:1/db", "-o", "s"],
        ["export", "--sourc", f"{address}/db"],
        ["export", f"{address}/db"],
        ["rollout", "babyai", "--task", "goto", "--episodes", "1", "--variant", "v"],
        rollout,
        ["serve", "sample:tiny-base", "--api-key-location", address],
    ):
        given = {"TENSORZERO_GATEWAY_URL": address, "OPENAI_API_KEY": KEY}
        if command[0] == "push":
            given |= {"HF_ENDPOINT": address, "HF_TOKEN": "hf_0123456789"}
        for done in (
            trajkit_here(tmp_path, *command, **given),
            trajkit(tmp_path, "--debug", *command, **given),
        ):
            assert done.returncode != 0, command
            assert "p4ss" not in everything(tmp_path, done), command


def test_the_doctor_shows_no_key_that_a_service_repeats(tmp_path: Path) -> None:
    def answer(path: str, key: str) -> tuple[int, str]:
        is_hub = path.endswith("whoami-v2")
        return (200, json.dumps({"name": f"me {key}"})) if is_hub else (503, f"no {KEY}")

    with listening(answer) as url:
        done = trajkit(
            tmp_path,
            "doctor",
            "--online",
            "--json",
            HF_TOKEN=f"{KEY}\n",
            HF_ENDPOINT=url,
            TENSORZERO_GATEWAY_URL=url,
            TENSORZERO_API_KEY=KEY,
            TENSORZERO_CLICKHOUSE_URL="http://me:s3cr\x1bet@host",
            TOGETHER_API_KEY="tk-bäd-key-value",
        )
    sections = json.loads(done.stdout)["sections"]
    checks = {check["name"]: check for part in sections for check in part["checks"]}
    assert "accepts the token of me ***" in checks["Hub"]["text"]
    assert "is not well (503)" in checks["TENSORZERO_GATEWAY_URL"]["text"]
    assert checks["TENSORZERO_CLICKHOUSE_URL"]["standing"] == "broken"
    assert checks["TOGETHER_API_KEY"]["standing"] == "broken"
    shown = everything(tmp_path, done)
    assert_absent(KEY, shown)
    assert "s3cr" not in shown
    assert "bäd" not in json.dumps(shown, ensure_ascii=False)
