"""vLLM as a process and a server: against the stand-in, which is no vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.stack import vllm_stand_in
from trajkit.errors import MissingExtra, RequestError, ServiceError, StackError
from trajkit.stack.process import birth_of
from trajkit.stack.vllm import Metrics, Vllm, read_metrics
from trajkit.stack.vllm_command import program_of, serve_arguments


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return vllm_stand_in.on_path(tmp_path, monkeypatch)


def started(*arguments: str, command: str = "vllm serve", key: SecretStr | None = None) -> Vllm:
    return Vllm.start(command, ["some/base", *arguments], say=lambda _: None, key=key)


def adapter(folder: Path, **config: object) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 12, **config}))
    return str(folder)


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while birth_of(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return birth_of(pid) is None


def test_a_started_server_has_the_models_of_its_command_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    tuned = adapter(tmp_path / "a,b")
    arguments = serve_arguments("some/base", name="base", adapters={"tuned": tuned})[1:]
    with started(*arguments, command=f"vllm serve --stand-in-child {tmp_path}/pid") as server:
        assert server.models() == {"base": "some/base", "tuned": tuned}
        assert server.metrics() == Metrics(0, 0, 0, 0)
        assert server.ended() is None
        pid = int((tmp_path / "pid").read_text())
    assert is_gone(pid)
    server.close()


def test_it_ends_with_the_process_that_started_it_even_if_that_is_killed(tmp_path: Path) -> None:
    program = (
        "from trajkit.stack.vllm import Vllm\n"
        f"Vllm.start('vllm serve --stand-in-child {tmp_path}/pid', ['base'], say=lambda _: None)\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout.readline() == b"ready\n"
        pid = int((tmp_path / "pid").read_text())
        assert birth_of(pid) is not None
        parent.send_signal(signal.SIGKILL)
    assert is_gone(pid)


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        ("nope serve", MissingExtra, "there is no program 'nope'"),
        ("vllm", RequestError, "has no word `serve`"),
        ("vllm 'serve", RequestError, "No closing quotation"),
        ("vllm serve --stand-in-fails 'CUDA out of memory'", StackError, "CUDA out of memory"),
        ("vllm serve --no-such-option", StackError, "unrecognized arguments: --no-such-option"),
    ],
)
def test_a_start_that_fails_says_why(command: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        started(command=command)


def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with started() as server:
        port = int(server.url.rpartition(":")[2].removesuffix("/v1"))
        with pytest.raises(StackError, match=f"nothing can listen on 127.0.0.1:{port}"):
            Vllm.start("vllm serve", ["m"], say=lambda _: None, port=port)


def test_a_server_that_has_ended_shows_the_end_of_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    with started(command=f"vllm serve --stand-in-child {tmp_path}/pid") as server:
        os.kill(server.process.pid, signal.SIGKILL)
        assert is_gone(server.process.pid)
        assert "stand-in for vLLM: no model is loaded" in str(server.ended())
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_an_adapter_is_loaded_by_name_where_the_server_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, wide = Path(adapter(tmp_path / "good")), Path(adapter(tmp_path / "wide", r=64))
    key = SecretStr("the-key-of-the-server")
    with started(key=key) as fixed, pytest.raises(ServiceError, match="takes no adapters") as caught:
        Vllm(fixed.url, key).serve_adapter("tuned", good)
    assert f"--lora-modules tuned={good}" in str(caught.value.hint)
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
    with started(key=key) as server:
        Vllm(server.url, key).serve_adapter("tuned", good)
        assert server.models() == {"some/base": "some/base", "tuned": str(good)}
        for folder, words in ((tmp_path / "none", "No adapter found"), (wide, "LoRA rank 64 is greater")):
            with pytest.raises(ServiceError, match=words):
                server.serve_adapter("other", folder)
        with pytest.raises(ServiceError, match="answered 401"):
            Vllm(server.url).models()


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("nonsense", RequestError, "'nonsense' is not the address of a vLLM"),
        ("http://127.0.0.1:9/v1", ServiceError, "vLLM at 127.0.0.1:9 cannot be reached"),
    ],
)
def test_an_address_without_a_server_is_said(url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Vllm(url).models()


def test_counters_are_summed_over_engines_and_other_text_is_none() -> None:
    text = """\
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 3.0
vllm:prefix_cache_hits_total{engine="1",model_name="{a} b"} 4.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1e+03
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 2.5 1700000000
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 9.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 99.0
"""
    assert read_metrics(text) == Metrics(1000, 7, 0, 2.5)
    assert read_metrics("process_cpu_seconds_total 3.0\n") is None


def test_options_of_the_user_go_last_and_the_model_follows_serve(stand_in: Path) -> None:
    program, further = program_of("vllm serve --max-model-len 4096")
    assert (program, further) == ([str(stand_in), "serve"], ["--max-model-len", "4096"])


def test_several_adapters_share_a_batch_and_a_chat_template(tmp_path: Path) -> None:
    both = {"one": adapter(tmp_path / "1"), "two=2": adapter(tmp_path / "2", r=40)}
    assert serve_arguments("base", adapters=both) == [
        *("base", "--enable-lora", "--max-lora-rank", "64", "--max-loras", "2", "--lora-modules"),
        f"one={tmp_path}/1",
        json.dumps({"name": "two=2", "path": f"{tmp_path}/2"}),
    ]
    (tmp_path / "1" / "chat_template.jinja").write_text("a")
    (tmp_path / "2" / "chat_template.jinja").write_text("b")
    with pytest.raises(RequestError, match="one vLLM has one chat template"):
        serve_arguments("base", adapters=both)
