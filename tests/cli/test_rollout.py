from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.matrix import daily
from tests.node_tools import free_port
from tests.rollouts.loopback import Reply, said, serve
from tests.warm import Forked
from trajkit._core.settings import remembered
from trajkit.cli.main import run
from trajkit.stack.gateway_config import prepare_config
from trajkit.stack.local import recipe_config
from trajkit.store.reader import open_store

EXPERT = ["rollout", "babyai", "--policy", "expert"]


def test_the_table_has_a_row_per_task_and_one_over_all(folder, capsys):
    assert run([*EXPERT, "--task", "goto", "--task", "open", "--episodes", "3"]) == 0
    printed = capsys.readouterr()
    heading, rule, *rows = printed.out.splitlines()
    assert heading.split("  ")[0] == "variant"
    assert set(rule) == {"-", " "}
    assert [row.split()[:4] for row in rows] == [
        ["expert", "goto", "3", "1.000"],
        ["expert", "open", "3", "1.000"],
        ["expert", "all", "6", "1.000"],
    ]
    start, end = printed.err.splitlines()
    assert start == "6 episodes of babyai for train: goto, open; expert; seeds 0:3"
    assert re.fullmatch(r"6 of 6 episodes  \d+ steps  6 successes  0 errors  [\d,]+ steps/s  [\d.]+ s", end)


def test_without_a_task_all_five_are_played(folder, capsys):
    assert run([*EXPERT, "--episodes", "1"]) == 0
    rows = [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["goto", "pickup", "open", "putnext", "pick_up_seq_go_to", "all"]


def test_json_is_a_line_per_episode_and_nothing_else(folder, capsys):
    assert run([*EXPERT, "--task", "goto", "--seeds", "200:202", "--purpose", "eval", "--json"]) == 0
    lines = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda line: line["seed"])
    first, second = lines
    assert list(first) == [
        "variant", "task", "seed", "outcome", "episode_return", "progression", "n_steps", "n_input_tokens",
        "n_output_tokens", "n_invalid_answers", "mission", "episode_id", "purpose", "run", "error",
        "error_kind",
    ]  # fmt: skip
    assert (first["seed"], second["seed"]) == (200, 201)
    assert (first["outcome"], first["progression"], first["purpose"]) == ("success", 1.0, "eval")
    assert first["episode_return"] == pytest.approx(1 - 0.9 * first["n_steps"] / 64)
    assert (first["n_input_tokens"], first["n_invalid_answers"], first["error"]) == (None, 0, None)
    assert first["error_kind"] is None
    assert first["run"] == second["run"]


def test_a_store_is_written_and_remembered(folder, capsys):
    assert run([*EXPERT, "--task", "goto", "--episodes", "2", "-o", "store"]) == 0
    assert open_store(folder / "store").manifest.counts.n_episodes == 2
    assert remembered("last_store") == {"path": str(folder / "store")}
    assert capsys.readouterr().err.splitlines()[-1].startswith("store  2 episodes  ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rollout", "chess"], "no environment 'chess'"),
        ([*EXPERT, "--task", "fly"], "no task 'fly' in babyai"),
        ([*EXPERT, "--seeds", "9:2"], "no seed is in 9:2"),
        ([*EXPERT, "--seeds", "0:2", "--episodes", "2"], "would give them again"),
        ([*EXPERT, "--variant", "history"], "there is no configuration"),
        (["rollout", "babyai", "--policy", "random", "--variant", "history"], "calls no gateway"),
        ([*EXPERT, "--noise", "0.5"], "has no noise"),
        ([*EXPERT, "--purpose", "test"], "'test' is not one of"),
        ([*EXPERT, "--seeds", "1,1"], "seed 1 is given twice"),
        ([*EXPERT, "--shard", "3/2"], "'3/2' is not a shard"),
        ([*EXPERT, "--max-cost-usd", "1"], "--max-cost-usd needs the prices of the model"),
        ([*EXPERT, "--input-price", "1"], "there must be prices of prompts and of answers"),
        ([*EXPERT, "--max-calls", "0"], "not in the range"),
        ([*EXPERT, "--max-minutes", "nan"], "max_minutes: "),
        ([*EXPERT, "--env-set", "size"], "'size' is not NAME=VALUE"),
        ([*EXPERT, "--env-set", "size=3"], "size"),
        ([*EXPERT, "--policy-set", "a=1"], "takes no --policy-set"),
        ([*EXPERT, "--model", "gpt"], "does not use --model"),
        ([*EXPERT, "--config", "t.toml"], "there is no t.toml"),
        (["rollout", "babyai", "--policy", "random", "--config", "t.toml"], "calls no gateway"),
        (["rollout", "babyai", "--policy", "clever"], "no policy 'clever'"),
        (["rollout", "babyai", "--policy", "openai"], "no model is given"),
        (["rollout", "babyai", "--policy", "no_such.agent:Agent"], "there is no module"),
        ([*EXPERT, "--timeout", "0"], "not in the range"),
        ([*EXPERT, "--concurrency", "0"], "not in the range"),
        (["rollout", "babyai"], "no gateway to play through"),
    ],
)
def test_a_wrong_request_is_refused_with_code_2(arguments, message, folder, capsys):
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert list(folder.iterdir()) == []


def test_a_store_that_exists_is_refused_before_anything_is_played(folder, capsys):
    (folder / "store").mkdir()
    assert run([*EXPERT, "-o", "store"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: store exists already",
        "hint: choose another path, or remove it first",
    ]


def test_it_plays_through_the_local_stack_as_the_readme_has_it(in_stack_folder, tmp_path, ask, capsys):
    store = tmp_path / "store"
    arguments = ["--task", "goto", "--variant", "history_and_reasoning", "--seeds", "0:3", "-o", str(store)]
    arguments += ["--max-steps", "6"]
    assert run(["rollout", "babyai", *arguments, "--concurrency", "50"]) == 0
    printed = capsys.readouterr()
    (row,) = printed.out.splitlines()[2:]
    assert row.split()[:3] == ["history_and_reasoning", "goto", "3"]
    assert "through the gateway (local stack)" in printed.err
    manifest = open_store(store).manifest
    n_kept = ask(
        f"SELECT count() FROM tensorzero.JsonInference WHERE tags['trajkit.run'] = '{manifest.source['run']}'"
    )
    assert int(n_kept) == manifest.counts.n_steps
    assert "without its prompt" not in printed.err


def test_episodes_that_a_service_spoiled_are_counted_and_the_exit_code_is_1(
    in_stack_folder, tmp_path, capsys
):
    closed = f"http://127.0.0.1:{free_port()}"
    config = prepare_config(recipe_config(), tmp_path / "config", model_url=closed)
    arguments = ["--task", "goto", "--variant", "history", "--episodes", "2", "--retries", "0"]
    assert run(["rollout", "babyai", *arguments, "--config", str(config)]) == 1
    printed = capsys.readouterr()
    heading, _, row = printed.out.splitlines()
    assert row.split() == ["history", "goto", "0", "-", "-", "-", "-", "-", "0", "2", "2"]
    assert heading.endswith("errors  connection")
    assert "2 episodes ended in an error, without feedback: connection: " in printed.err


def test_a_model_that_is_down_ends_the_run_with_code_4(in_stack_folder, tmp_path, capsys):
    closed = f"http://127.0.0.1:{free_port()}"
    config = prepare_config(recipe_config(), tmp_path / "config", model_url=closed)
    arguments = ["--variant", "history", "--episodes", "200", "--retries", "0", "--config", str(config)]
    assert run(["rollout", "babyai", *arguments]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: 5 episodes in a row ended by connection: " in printed.err
    assert "hint: check that the model server is up:" in printed.err


@pytest.mark.full
def test_ctrl_c_leaves_feedback_of_finished_episodes_only_and_no_store(
    in_stack_folder, ask, tmp_path_factory
):
    command = ["rollout", "babyai", "--variant", "history", "--task", "goto", "--json"]
    command += ["--max-steps", "4", "--episodes", "100", "--concurrency", "8", "-o", "store"]
    streams = [tmp_path_factory.mktemp("streams") / name for name in ("out", "err")]
    for each in streams:
        each.touch()
    process = Forked(None, command, in_stack_folder, os.environ, ("/dev/null", *map(str, streams)))
    while "\n" not in streams[0].read_text() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait() == 130
    out, err = (each.read_text() for each in streams)
    lines = [json.loads(line) for line in out.splitlines()]
    assert f"{len(lines)} of 100 episodes finished and logged; the others have no feedback" in err
    assert "no store was written; the same command plays the rest" in err
    assert err.splitlines()[-1] == "error: stopped"
    assert "Traceback" not in err
    assert "Fatal" not in err
    rows = ask(
        "SELECT target_id, count() FROM tensorzero.FloatMetricFeedback "
        f"WHERE tags['trajkit.run'] = '{lines[0]['run']}' GROUP BY target_id"
    )
    assert sorted(rows.splitlines()) == sorted(f"{line['episode_id']}\t2" for line in lines)
    assert [path.name for path in in_stack_folder.iterdir()] == [".trajkit"]
    marked = ask(
        "SELECT tags['trajkit.abandoned'], count() FROM tensorzero.CommentFeedback "
        f"WHERE tags['trajkit.run'] = '{lines[0]['run']}' GROUP BY 1"
    )
    assert re.fullmatch(r"stopped\t[1-8]", marked.strip())  # as many as were in flight, of which rows exist


@pytest.mark.full
def test_a_run_that_was_stopped_goes_on_where_it_was(folder, capsys):
    command = [*EXPERT, "--task", "goto", "--seeds", "0:300", "-o", "store"]
    assert run([*command, "--max-minutes", "0.0025", "--json"]) == 5
    stopped = capsys.readouterr()
    first = [json.loads(line)["seed"] for line in stopped.out.splitlines()]
    assert 0 < len(first) < 300
    assert f"--max-minutes is reached: 0.0025 min; {len(first)} of 300 episodes are done; " in stopped.err
    assert open_store(folder / "store").manifest.counts.n_episodes == len(first)
    assert run([*command, "--json"]) == 0
    whole = capsys.readouterr()
    seeds = [json.loads(line)["seed"] for line in whole.out.splitlines()]
    assert seeds[: len(first)] == first
    assert sorted(seeds) == list(range(300))
    assert f"; {len(first)} done before" in whole.err
    assert open_store(folder / "store").manifest.counts.n_episodes == 300


def test_a_run_that_is_done_says_so_and_prints_its_table_and_writes_its_store(folder, capsys):
    command = [*EXPERT, "--task", "goto", "--episodes", "3"]
    assert run(command) == 0
    table = capsys.readouterr().out
    assert run([*command, "-o", "store"]) == 0
    again = capsys.readouterr()
    assert again.out == table
    first, last = again.err.splitlines()
    assert re.fullmatch(
        r"all 3 episodes of this run are done \(journal at \S+/journal-0001\.jsonl\); "
        r"--new-run plays them again",
        first,
    )
    assert last.startswith("store  3 episodes  ")
    assert run([*command, "--new-run"]) == 0
    assert "3 of 3 episodes" in capsys.readouterr().err


def test_quiet_leaves_the_table_alone(folder, capsys):
    assert run([*EXPERT, "--task", "goto", "--episodes", "2", "--quiet", "-o", "store"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert len(printed.out.splitlines()) == 3
    assert run([*EXPERT, "--task", "goto", "--episodes", "2", "--quiet", "--json"]) == 0
    printed = capsys.readouterr()
    assert (printed.err, len(printed.out.splitlines())) == ("", 2)


def test_the_shards_together_are_the_whole(folder, capsys):
    def jobs(*arguments):
        assert run([*EXPERT, "--task", "goto", "--task", "open", "--seeds", "0:9", "--json", *arguments]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return sorted((line["task"], line["seed"]) for line in lines)

    parts = [jobs("--shard", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(job for part in parts for job in part) == jobs()
    assert all(parts)


def test_seeds_come_from_a_list_or_a_file(folder, capsys):
    (folder / "seeds.txt").write_text("4\n2  # a hard one\n")
    for seeds, expected in (("1,5,9", [1, 5, 9]), ("0:20:7", [0, 7, 14]), ("seeds.txt", [2, 4])):
        assert run([*EXPERT, "--task", "goto", "--seeds", seeds, "--json"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(line["seed"] for line in lines) == expected


OWN = """
from trajkit.environments.base import Result, Start

class Count:
    \"\"\"Say the numbers from 1 to `n`.\"\"\"

    def __init__(self, n: int = 3) -> None:
        self.n = n

    def reset(self, seed: int) -> Start:
        self.at = 0
        return Start("count", "say 1")

    def step(self, text: str | None) -> Result:
        print("noise")
        self.at += text == str(self.at + 1)
        return Result(f"say {self.at + 1}", 1.0, self.at == self.n, False)

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(map(str, range(1, 3)))

def agent(observation: str) -> str:
    return observation.split()[-1]
"""


def test_an_environment_and_an_agent_of_ones_own_are_played_by_name(folder, capsys):
    (folder / "own_world.py").write_text(OWN)
    command = ["rollout", "own_world:Count", "--env-set", "n=5", "--policy", "own_world:agent"]
    assert run([*command, "--episodes", "2", "--json", "-o", "store"]) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [(line["n_steps"], line["outcome"], line["variant"]) for line in lines] == [
        (5, "success", "own_world:agent")
    ] * 2
    assert printed.err.count("noise") == 10  # what an environment prints is no result
    arguments = open_store(folder / "store").manifest.lineage[0].arguments
    assert (arguments["env_id"], arguments["env_settings"]) == ("own_world:Count", {"n": "5"})


def test_an_environment_without_an_end_is_bounded(folder, capsys):
    (folder / "own_world.py").write_text(OWN)
    command = ["rollout", "own_world:Count", "--policy", "random", "--episodes", "2", "--json"]
    assert run([*command, "--max-steps", "6"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["n_steps"] for line in lines] == [6, 6]


# -- a model that costs money --------------------------------------------------------------------------------

PAID = ["rollout", "babyai", "--task", "goto", "--episodes", "10", "--policy", "openai", "--model", "gpt-x"]


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_a_model_that_costs_money_is_not_asked_without_a_yes(folder, capsys, key):
    assert run([*PAID, "--input-price", "2", "--output-price", "8", "--max-steps", "10"]) == 2
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0] == "10 episodes of babyai for train: goto; gpt-x; seeds 0:10"
    assert lines[1] == "models    gpt-x at api.openai.com/v1"
    assert lines[2] == "calls     at most 100, and retries"
    # 1,024 tokens are the policy's own limit of an answer: 100 x 1,024
    assert re.fullmatch(r"tokens    about [\d,]+ in \(an estimate .*\), at most 102,400 out", lines[3])
    assert re.fullmatch(r"price     at most about \d\.\d\d USD", lines[4])
    assert lines[5] == "error: this calls a model that may cost money: gpt-x at api.openai.com/v1"
    assert lines[6] == "hint: --yes plays it, --dry-run only shows the plan"
    assert printed.out == ""
    assert list(folder.iterdir()) == []
    assert "sk-not-a-key" not in printed.err


def test_a_dry_run_prints_the_plan_and_leaves_nothing(folder, capsys, key):
    (folder / "trajkit.toml").write_text("input_price = 2\noutput_price = 8\n")
    assert run([*PAID, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["n_episodes"], plan["n_done"], plan["n_calls"]) == (10, 0, 640)  # goto ends after 64 steps
    assert plan["models"] == ["gpt-x at api.openai.com/v1"]
    assert plan["n_output_tokens"] == 640 * 1024
    assert plan["cost_usd"] == pytest.approx((2 * plan["n_input_tokens"] + 8 * plan["n_output_tokens"]) / 1e6)
    assert run([*EXPERT, "--task", "goto", "--dry-run"]) == 0
    assert "models    none that costs money" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["trajkit.toml"]


def test_limits_bound_the_plan(folder, capsys, key):
    assert run([*PAID, "--dry-run", "--json", "--max-calls", "50"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["n_calls"], plan["cost_usd"]) == (50, None)


def test_a_model_on_this_machine_is_asked_without_a_question_and_limits_hold(folder, capsys):
    from trajkit.stack.process import end, start_module

    log = folder / "model.log"
    process, url = start_module(
        "trajkit.stack.model_server",
        ["--port", "0", "--mistakes", "0"],
        log=log,
        is_ready=lambda _: (re.search(r"http://127\.0\.0\.1:\d+", log.read_text()) or [None])[0],
        what="the model server",
    )
    try:
        command = ["rollout", "babyai", "--task", "goto", "--episodes", "4", "--policy", "openai"]
        command += ["--model", "rule-player", "--model-url", f"{url}/v1", "--json"]
        prices = ["--input-price", "1000", "--output-price", "1000"]
        assert run([*command, "--max-calls", "3", "--concurrency", "1"]) == 5
        stopped = capsys.readouterr()
        assert "--max-calls is reached: 3 calls" in stopped.err
        assert "3 calls  " in stopped.err
        assert run([*command, *prices, "--max-cost-usd", "0.5", "--concurrency", "1"]) == 5
        assert re.search(r"--max-cost-usd is reached: 0\.\d+ of 0\.5 USD", capsys.readouterr().err)
        assert run(command) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(line["seed"] for line in lines) == [0, 1, 2, 3]
        assert all(line["variant"] == "rule-player" and line["n_input_tokens"] for line in lines)
    finally:
        end(process)


ASKING = """
import json
import urllib.request

def past(turn):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": turn.observation}]})
    request = urllib.request.Request(URL, body.encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

async def through(turn):
    said = await turn.chat([{"role": "user", "content": turn.observation}], model="m")
    return said.choices[0].message.content
"""


def test_an_agent_that_asks_past_its_turn_is_told_of_after_its_first_episode(folder, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    (folder / "own_past.py").write_text(OWN)
    with serve(lambda body, number: Reply(said("1"))) as server:
        url = server.url
        (folder / "asking.py").write_text(ASKING.replace("URL", repr(f"{url}/chat/completions")))
        command = ["rollout", "own_past:Count", "--episodes", "2", "--max-steps", "2", "--model-url", url]
        assert run([*command, "--policy", "asking:past", "--json"]) == 0
        printed = capsys.readouterr().err
        told = "this agent called no model through turn.chat or turn.inference"
        assert printed.count(told) == 1
        assert printed.index(told) < printed.index("2 of 2 episodes")
        assert run([*command, "--policy", "asking:past", "--purpose", "eval"]) == 0
        assert run([*command, "--policy", "asking:through", "--max-calls", "9"]) == 0
        assert told not in capsys.readouterr().err


def test_the_stand_in_costs_nothing_and_a_real_model_in_its_place_is_asked_about(
    in_stack_folder, tmp_path, capsys
):
    assert run(["rollout", "babyai", "--variant", "history", "--episodes", "1", "--dry-run"]) == 0
    assert "models    none that costs money" in capsys.readouterr().out
    config = tmp_path / "config" / "tensorzero.toml"
    prepare_config(recipe_config(), config.parent, model_url=None, model="openai::gpt-x")
    command = ["rollout", "babyai", "--variant", "history", "--episodes", "1", "--config", str(config)]
    assert run(command) == 2
    assert "may cost money: openai::gpt-x (variant history)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "code", "last"), daily([("n", 1, "nothing was played"), ("y", 2, "needs a key")], 1)
)
def test_on_a_terminal_it_asks_and_takes_a_no(typed, code, last, folder, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    ours, theirs = os.openpty()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "dumb"}
    with subprocess.Popen(
        [sys.executable, "-m", "trajkit", *PAID], stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs,
        env=environment,
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while b"Play? [y/N]:" not in said:
            said += os.read(ours, 1000)
        os.write(ours, typed.encode() + b"\n")
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            try:
                said += os.read(ours, 1000)
            except OSError:  # the other side is closed
                break
        assert process.wait(30) == code
    os.close(ours)
    assert "models    gpt-x at api.openai.com/v1" in said.decode()
    assert last in said.decode()
