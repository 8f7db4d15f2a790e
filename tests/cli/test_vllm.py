"""Commands that play with vLLM or start it: against the stand-in, which is no vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.stack import vllm_stand_in
from trajkit.cli.main import run
from trajkit.errors import RequestError
from trajkit.stack.process import birth_of
from trajkit.stack.vllm import Vllm
from trajkit.store.dataset import open_dataset

BASE = "sample:tiny-base"
PLAYED = ("--task", "goto", "--max-steps", "4")


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return vllm_stand_in.on_path(tmp_path, monkeypatch)


def adapter(folder: Path) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "base_model_name_or_path": BASE}))
    return str(folder)


def rollout(*options: str, model: str = BASE, episodes: int = 3) -> list[str]:
    return [
        *("rollout", "babyai", *PLAYED, "--policy", "vllm", "--model", model),
        *("--episodes", str(episodes), *options),
    ]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_rollout_starts_vllm_and_keeps_the_sampled_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = adapter(tmp_path / "tuned")
    plain = ("--policy-set", "json_mode=off", "-o", "played", "--json")
    command = ("--vllm-command", f"vllm serve --stand-in-child {tmp_path}/pid")
    assert run(rollout(*plain, *command, model=tuned)) == 0
    *episodes, last = lines(capsys)
    assert [each["variant"] for each in episodes] == [tuned] * 3
    use = last["vllm"]
    assert use["max_in_flight"] == 128
    assert use["n_prompt_tokens"] == sum(each["n_input_tokens"] for each in episodes)
    assert use["n_generated_tokens"] == sum(each["n_output_tokens"] for each in episodes)
    assert 0 < use["prefix_cache_hit_rate"] < 1
    assert 0 < use["mean_in_flight"] < 3
    steps = [step for episode in open_dataset("played") for step in episode.steps]
    for step in steps:
        assert bytes(step.prompt_token_ids or ()).startswith(b"system: You act in a world")
        assert bytes((step.completion_token_ids or ())[:-1]).decode() == step.completion.text
        assert step.logprobs == pytest.approx([-0.6931] * len(step.completion_token_ids or ()), abs=1e-3)
        assert (step.model_name, step.variant_name) == (tuned, tuned)
    assert birth_of(int((tmp_path / "pid").read_text())) is None


def test_under_a_schema_the_models_own_log_probabilities_are_not_those_of_the_draw() -> None:
    assert run(rollout("-o", "played", episodes=1)) == 0
    (episode,) = open_dataset("played")
    assert all(step.completion_token_ids and step.logprobs is None for step in episode.steps)
    assert all(step.action_valid for step in episode.steps)


def test_a_finished_run_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rollout(episodes=1)) == 0
    assert run(rollout("--vllm-command", "nope serve", episodes=1)) == 0
    assert "all 1 episode of this run are done" in capsys.readouterr().err


@pytest.mark.full
def test_shards_share_one_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rollout("--workers", "2", "-o", "played")) == 0
    shown = capsys.readouterr()
    assert shown.err.count("starting vLLM") == 1
    assert "prefix cache hit by" in shown.err
    assert len(list(open_dataset("played"))) == 3


def test_a_server_that_is_killed_in_the_middle_ends_the_run_with_its_last_words_and_the_rest_is_played_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.monotonic()
    dying = ("--vllm-command", "vllm serve --stand-in-dies-after 4", "--concurrency", "1")
    assert run(rollout(*dying)) == 1
    assert time.monotonic() - began < 30  # a server that is dead is not waited for
    shown = capsys.readouterr()
    assert "connection: vLLM has ended: INFO stand-in for vLLM" in shown.err
    assert run(rollout()) == 0
    assert "3 of 3 episodes" in capsys.readouterr().err


def test_an_attached_server_gets_the_adapters_it_lacks_and_keeps_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = adapter(tmp_path / "tuned")
    compared = (
        "evaluate",
        "babyai",
        *PLAYED,
        "--seeds",
        "0:2",
        "--through",
        "vllm",
        "--json",
        "-o",
        "played",
    )
    pair = ("--variants", f"base=served,tuned={tuned}")
    with Vllm.start("vllm serve", ["served"], say=lambda _: None) as fixed:
        assert run([*compared, *pair, "--model-url", fixed.url]) == 4
        assert "takes no adapters while it runs" in capsys.readouterr().err
        assert run(rollout("--model-url", fixed.url, model="else")) == 2
        assert f"{fixed.url} serves no model 'else'" in capsys.readouterr().err
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    with Vllm.start("vllm serve", ["served"], say=lambda _: None) as server:
        assert run([*compared, *pair, "--model-url", server.url]) == 0
        document = json.loads(capsys.readouterr().out)
        assert {group["variant"] for group in document["groups"]} == {"base", "tuned"}
        assert document["vllm"]["url"] == server.url
        assert server.models() == {"served": "served", tuned: tuned}


def test_an_evaluation_starts_one_vllm_for_all_of_its_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = adapter(tmp_path / "tuned")
    asked = ["evaluate", "babyai", *PLAYED, "--seeds", "0:2", "--through", "vllm", "-o", "played"]
    assert run([*asked, "--variants", f"base={BASE},tuned={tuned}"]) == 0
    assert f"vLLM serves {BASE}, {tuned} at " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (rollout("--vllm-command", "nope serve"), 3, "there is no program 'nope'"),
        (rollout("--vllm-command", "vllm serve --stand-in-fails Oops"), 1, "vLLM did not start"),
        (rollout("--model-url", "http://127.0.0.1:9/v1"), 4, "cannot be reached"),
        (rollout("--model-url", "nonsense"), 2, "'nonsense' is not the address of a vLLM"),
        (rollout("--model-url", "http://127.0.0.1:9/v1", "--vllm-command", "x serve"), 2, "is not used"),
        (rollout("--on", "slurm"), 2, "cannot reach a vLLM that is started here"),
        (rollout(model="nobody"), 2, "no job and no folder 'nobody'"),
        (rollout(model="bin"), 2, "bin is neither an adapter nor a model"),
        (["serve", BASE, "--engine", "vllm", "--threads", "2"], 2, "--threads is of trajkit's own engine"),
        (["serve", BASE, "--vllm-command", "x serve"], 2, "--vllm-command is of vLLM"),
    ],
)
def test_what_cannot_be_started_or_used_is_said(
    arguments: Sequence[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments]) == code
    assert words in capsys.readouterr().err


def test_serve_starts_vllm_with_the_models_of_its_command_and_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = adapter(tmp_path / "tuned")
    monkeypatch.setenv("MINE", "the-key-of-mine")
    asked = {"name": "goto", "port": 0, "api_key_location": "env::MINE"}
    with trajkit.serve(tuned, engine="vllm", **asked) as server:
        assert server.models == [BASE, "goto"]
        assert server.to_json()["url"] == server.url
        played = rollout("--model-url", server.url, model="goto", episodes=1)
        monkeypatch.setenv("OPENAI_API_KEY", "the-key-of-mine")
        assert run(played) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(RequestError, match="one server loads one base model"):
        trajkit.serve([tuned, str(tmp_path / "other")], engine="vllm")


def test_ctrl_c_ends_the_vllm_of_serve(tmp_path: Path) -> None:
    command = f"vllm serve --stand-in-child {tmp_path}/pid"
    program = [sys.executable, "-m", "trajkit", "serve", BASE, "--engine", "vllm", "--port", "0"]
    with subprocess.Popen([*program, "--vllm-command", command], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("http://127.0.0.1:")
        child.send_signal(2)
        assert child.wait(20) in (0, 130)  # 130 where it comes before the command waits for it
    deadline, pid = time.monotonic() + 10, int((tmp_path / "pid").read_text())
    while birth_of(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert birth_of(pid) is None
