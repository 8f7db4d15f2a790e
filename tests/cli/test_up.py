"""`trajkit up`, `status` and `down`, and with `up --serve` a model of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.adapters import make_adapter
from trajkit.cli.main import run
from trajkit.commands.up import _model_and_name
from trajkit.store.dataset import open_dataset

ROOT = Path(__file__).parents[2]
BASE = "sample:tiny-base"


class Shell:
    """The command line in a working folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TENSORZERO_")
        } | {"PYTHONPATH": str(ROOT)}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trajkit", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return warm.trajkit(arguments, self.folder, self.environment)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("down")


def password_of(folder: Path) -> str:
    mark = json.loads((folder / ".trajkit" / "stack" / "clickhouse" / "clickhouse.json").read_text())
    return str(mark["password"])


def test_a_day_in_the_life_of_the_stack(shell: Shell) -> None:
    up = shell.run("up")
    assert up.returncode == 0, up.stderr
    assert re.search(
        r"^ClickHouse +running +\d+ .*http://trajkit:\*\*\*@127\.0\.0\.1:\d+/tensorzero$", up.stdout, re.M
    )
    assert re.search(
        r"^model server +running +\d+ .*rule player, not a language model; 20% mistakes$", up.stdout, re.M
    )
    assert re.search(r"^gateway +in each command ", up.stdout, re.M)
    assert "next:" in up.stderr
    assert "  trajkit export --metric episode_return --min 0.7" in up.stderr
    assert stat.S_IMODE((shell.folder / ".trajkit" / "stack.json").stat().st_mode) == 0o600

    status = shell.run("status")
    assert status.returncode == 0
    assert re.search(r"^JsonInference +0$", status.stdout, re.M)

    again = shell.run("up")
    assert again.returncode == 0
    assert "it was running already" in again.stderr
    assert again.stdout == up.stdout

    facts = shell.json("status")
    assert facts["is_up"] is True
    assert facts["rows"]["FloatMetricFeedback"] == 0
    assert facts["clickhouse"]["is_running"] is True
    assert facts["model_server"]["is"] == "rule player, not a language model"

    password = password_of(shell.folder)
    for text in (up.stdout, up.stderr, status.stdout, status.stderr, json.dumps(facts)):
        assert password not in text

    os.kill(facts["clickhouse"]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while shell.json("status")["is_up"] and time.monotonic() < deadline:
        time.sleep(0.05)
    dead = shell.run("status")
    assert dead.returncode == 1
    assert re.search(r"^ClickHouse +not running ", dead.stdout, re.M)
    assert "`trajkit up` starts what is not running, on the same data" in dead.stderr

    revived = shell.run("up")
    assert revived.returncode == 0
    assert revived.stderr.startswith("starting ClickHouse on ")

    down = shell.run("down")
    assert down.returncode == 0
    assert re.fullmatch(
        r"ClickHouse stopped \(process \d+\)\nmodel server stopped \(process \d+\)\n", down.stdout
    )
    assert (shell.folder / ".trajkit" / "stack" / "clickhouse" / "data").is_dir()

    deleted = shell.json("down", "--delete-data")
    assert deleted == {"services": [], "deleted": str(shell.folder / ".trajkit" / "stack" / "clickhouse")}


def test_where_nothing_is_up_status_fails_and_down_does_not(shell: Shell) -> None:
    status = shell.run("status")
    assert (status.returncode, status.stdout) == (1, "")
    assert status.stderr == "nothing is running in this folder; start with `trajkit up`\n"
    assert shell.json("status") == {"is_up": False, "rows": {}}
    down = shell.run("down")
    assert (down.returncode, down.stdout, down.stderr) == (0, "", "nothing was running in this folder\n")


@pytest.mark.full
def test_the_project_file_names_configuration_and_model(shell: Shell) -> None:
    (shell.folder / "trajkit.toml").write_text('model = "openai::gpt-4.1-mini"\n')
    shell.environment["TENSORZERO_CLICKHOUSE_URL"] = "http://elsewhere:8123/tensorzero"
    up = shell.run("up")
    assert up.returncode == 0, up.stderr
    assert re.search(r"^model +elsewhere +openai::gpt-4\.1-mini$", up.stdout, re.M)
    assert "note: TENSORZERO_CLICKHOUSE_URL is set" in up.stderr
    (shell.folder / "trajkit.toml").write_text('config = "none.toml"\n')
    wrong = shell.run("up")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: there is no none.toml\nhint: name a tensorzero.toml, not a pattern\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--mistakes", "1.5"], 2, "1.5 is not in the range 0<=x<=1"),
        (["--config", "none.toml"], 2, "error: there is no none.toml"),
        (["--data", "full"], 1, "holds something other than trajkit data"),
    ],
)
def test_a_wrong_request_is_one_line_with_a_code(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    (shell.folder / "full").mkdir()
    (shell.folder / "full" / "thesis.txt").touch()
    up = shell.run("up", *arguments)
    assert (up.returncode, up.stdout) == (code, "")
    assert message in up.stderr
    assert "Traceback" not in up.stderr
    assert shell.json("status")["is_up"] is False


@pytest.mark.full
def test_ctrl_c_while_it_starts_stops_what_was_started(shell: Shell) -> None:
    up = subprocess.Popen(
        shell.command("up"),
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stderr is not None
    said = [up.stderr.readline() for _ in range(3)]
    assert said[2].startswith("opening the gateway once")
    up.send_signal(signal.SIGINT)
    out, rest = up.communicate(timeout=60)
    assert (up.returncode, out) == (130, "")
    assert rest.strip() == "error: stopped"
    assert not (shell.folder / ".trajkit" / "stack.json").exists()
    mark = json.loads((shell.folder / ".trajkit" / "stack" / "clickhouse" / "clickhouse.json").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(mark["process"]["pid"], 0)


def test_help_says_that_there_is_no_gateway_process_and_how_to_use_one(shell: Shell) -> None:
    text = " ".join(shell.run("up", "--help").stdout.split())
    assert "There is no gateway process" in text
    assert "TENSORZERO_GATEWAY_URL" in text
    assert "not a language model" in text


# -- a model of this machine in the place of the stand-in, behind the real gateway


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.full
def test_a_model_of_this_machine_plays_through_the_gateway(shell: Shell) -> None:
    make_adapter(BASE, shell.folder / "tuned", loudness=0.01)
    asked = ("up", "--serve", f"{BASE}=tiny", "--serve", "tuned=mine")
    assert " tiny, mine\n" in done(shell.run(*asked))
    facts = shell.json("status")["model_server"]
    assert (facts["is"], facts["models"], facts["is_running"]) == ("trajkit serve", ["tiny", "mine"], True)
    state = json.loads((shell.folder / ".trajkit" / "stack.json").read_text())
    config = tomllib.loads(Path(state["config_file"]).read_text())
    provider = config["models"]["agent"]["providers"]["stand_in"]
    assert (provider["model_name"], provider["api_base"]) == ("tiny", f"{facts['url']}/v1/")
    assert "it was running already" in shell.run(*asked).stderr

    played = ("rollout", "babyai", "--task", "goto", "--variant", "baseline", "--episodes", "2")
    done(shell.run(*played, "--max-steps", "4", "-o", "played"))
    steps = [step for episode in open_dataset(shell.folder / "played") for step in episode.steps]
    assert steps
    assert all(step.action is not None for step in steps)  # the schema held

    changed = done(shell.run("up"))
    assert "rule player, not a language model" in changed
    assert shell.json("status")["model_server"]["pid"] != facts["pid"]
    assert "model server stopped" in done(shell.run("down"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", BASE, "--model", "openai::x"], "--model and --serve exclude each other"),
        (["--serve", "nobody"], "no job and no folder 'nobody'"),
        (["--serve", f"{BASE}=a", "--serve", f"{BASE}=b"], "are the same model"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["up", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / ".trajkit").exists()


def test_a_name_is_what_follows_the_last_sign_unless_it_is_a_folder(tmp_path: Path) -> None:
    assert _model_and_name("goto-sft") == ("goto-sft", None)
    assert _model_and_name("goto-sft=new") == ("goto-sft", "new")
    (tmp_path / "a=b").mkdir()
    assert _model_and_name(str(tmp_path / "a=b")) == (str(tmp_path / "a=b"), None)
