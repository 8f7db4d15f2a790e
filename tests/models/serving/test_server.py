"""The process: addresses, keys, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import trajkit
from tests.adapters import make_adapter
from tests.models.serving.conftest import serving
from trajkit.cli.main import run
from trajkit.errors import RequestError
from trajkit.models.serving.served_models import Wanted, served_models

BASE = "sample:tiny-base"


def ask(url: str, **how: Any) -> httpx.Response:
    asked = {"model": BASE, "messages": [{"role": "user", "content": "Play."}], **how}
    return httpx.post(f"{url}/chat/completions", json=asked, timeout=120)


def test_an_answer_that_is_being_made_is_finished_when_it_is_told_to_end() -> None:
    with serving(BASE) as running:
        schema = {"type": "array", "items": {"const": 1}, "minItems": 60, "maxItems": 60}
        how = {"type": "json_schema", "json_schema": {"name": "ones", "schema": schema}}
        answers: list[httpx.Response] = []
        began = threading.Event()

        def listen() -> None:
            asked = {"model": BASE, "messages": [{"role": "user", "content": "Play."}], "stream": True}
            with httpx.stream(
                "POST",
                f"{running.url}/chat/completions",
                json={**asked, "response_format": how, "max_tokens": 3000},
                timeout=120,
            ) as answer:
                for _ in answer.iter_lines():
                    began.set()
                answers.append(answer)

        thread = threading.Thread(target=listen)
        thread.start()
        assert began.wait(60)
        code, talk = running.end()
        thread.join(60)
    assert (code, answers[0].status_code) == (0, 200)
    assert "Traceback" not in talk
    assert talk.splitlines()[-1] == "ended"


def test_a_key_is_asked_for_and_never_shown_and_ctrl_c_ends_it_and_frees_the_port() -> None:
    how = ("--name", "tiny", "--api-key-location", "env::MY_KEY")
    with serving(BASE, *how, MY_KEY="s3cret-of-ours") as running:
        assert running.models == ["tiny"]
        assert running.said["pid"] == running.process.pid
        assert ask(running.url, model="tiny").status_code == 401
        with pytest.raises(openai.AuthenticationError):
            running.client("another").models.list()
        ours = running.client("s3cret-of-ours")
        assert [model.id for model in ours.models.list()] == ["tiny"]
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "Play."}], "max_tokens": 3}
        assert ours.chat.completions.create(**asked).choices
        assert httpx.get(running.url.replace("/v1", "/health")).status_code == 200
        # who has the key may come by any name
        named = {"host": "evil.example"}
        assert httpx.get(f"{running.url}/models", headers=named, timeout=60).status_code == 401
        named["authorization"] = "Bearer s3cret-of-ours"
        assert httpx.get(f"{running.url}/models", headers=named, timeout=60).status_code == 200
        code, talk = running.end(signal.SIGINT)
        port = int(running.url.rpartition(":")[2].removesuffix("/v1"))
    assert (code, "Traceback" in talk) == (0, False)
    assert "s3cret" not in str(running.said) + talk
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_in_python_it_serves_until_it_is_closed() -> None:
    with trajkit.serve(BASE, port=0, name="tiny") as server:
        assert server.to_json() == {"url": server.url, "models": ["tiny"], "pid": os.getpid()}
        assert ask(server.url, model="tiny", max_tokens=3).status_code == 200
    with pytest.raises(httpx.ConnectError):
        ask(server.url)


def test_the_address_alone_is_printed_and_a_taken_one_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["serve", BASE, "--port", str(port)]) == 1
    printed = capsys.readouterr()
    assert f"error: nothing can listen on 127.0.0.1:{port}" in printed.err
    assert printed.out == ""


def adapter(folder: Path, base: str | None) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{base}"}}' if base else "{}")
    return str(folder)


def test_an_adapter_imports_no_module_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Path(make_adapter(BASE, tmp_path / "made"))
    config = json.loads((made / "adapter_config.json").read_text())
    config |= {"megatron_config": {"tensor_model_parallel_size": 1}, "megatron_core": "evil_megatron"}
    (made / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "evil_megatron.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["serve", str(made), "--base", BASE, "--port", "0"]) == 2
    assert "does not run code of a model" in capsys.readouterr().err
    assert not (tmp_path / "mark").exists()


def test_adapters_of_one_base_share_a_server(tmp_path: Path) -> None:
    one = Wanted("one", adapter(tmp_path / "a", BASE))
    two = Wanted("two", adapter(tmp_path / "b", BASE))
    found = served_models([one, two])
    assert (found.base, found.name, list(found.adapters)) == (BASE, BASE, ["one", "two"])
    named = served_models([Wanted("base", BASE), two])
    assert (named.name, named.adapters) == ("base", {"two": two.model})
    assert named.arguments(("two", "base")) == (
        *(two.model, BASE, "--name", "two", "--name", "base", "--base", BASE),
    )


def test_models_that_cannot_share_one_are_refused(tmp_path: Path) -> None:
    one = Wanted("one", adapter(tmp_path / "a", BASE))
    other = Wanted("two", adapter(tmp_path / "b", "some/other"))
    with pytest.raises(RequestError, match="loads one base model, and these have 2"):
        served_models([one, other])
    with pytest.raises(RequestError, match="the same name"):
        served_models([one, one._replace(model=adapter(tmp_path / "c", BASE))])
    with pytest.raises(RequestError, match="does not name its base model"):
        served_models([Wanted("x", adapter(tmp_path / "d", None))])
    with pytest.raises(RequestError, match="are the same model"):
        served_models([Wanted("x", BASE), Wanted("y", BASE)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([BASE, "--name", "a", "--name", "b"], "1 models and 2 names"),
        (["nobody"], "no job and no folder 'nobody'"),
        ([BASE, "--api-key-location", "s3cret"], "does not name an environment variable"),
        ([BASE, "--api-key-location", "env::TRAJKIT_NO_SUCH"], "TRAJKIT_NO_SUCH is not set"),
    ],
)
def test_a_wrong_request_is_said_before_anything_is_loaded(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err
