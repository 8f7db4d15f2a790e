from __future__ import annotations

import inspect
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import trajkit
from tests.pages import BIN
from trajkit.errors import RequestError
from trajkit.registry.local_server import LocalModel, Server, Serving, default_server, serving
from trajkit.stack.gateway_config import STAND_IN_HOST

API_BASE = "http://127.0.0.1:8000/v1/"


def adapter(tmp_path: Path, **config: object) -> LocalModel:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 12, **config}))
    (folder / "chat_template.jinja").write_text("")
    return LocalModel("tuned", "some/base", folder)


def served(model: LocalModel, server: Server, api_base: str = API_BASE) -> Serving:
    return serving(model, server, name="in-config", api_base=api_base)


def test_vllm_serves_an_adapter_on_its_base(tmp_path: Path) -> None:
    how = served(adapter(tmp_path), Server.VLLM)
    folder = tmp_path / "my model"
    assert shlex.split(how.command) == [
        *("vllm", "serve", "some/base", "--enable-lora"),
        *("--max-lora-rank", "16", "--lora-modules", f"tuned={folder}"),
        *("--chat-template", f"{folder}/chat_template.jinja"),
        *("--host", "127.0.0.1", "--port", "8000"),
    ]
    assert how.served.table() == {
        "routing": ["vllm"],
        "providers": {
            "vllm": {
                "type": "openai",
                "model_name": "tuned",
                "api_base": API_BASE,
                "api_key_location": "none",
            }
        },
    }


def test_trajkit_serves_an_adapter_as_it_is_and_a_whole_model(tmp_path: Path) -> None:
    model = adapter(tmp_path, use_dora=True)
    how = served(model, Server.TRAJKIT)
    assert shlex.split(how.command) == [
        *("trajkit", "serve", str(tmp_path / "my model"), "--base", "some/base", "--name", "tuned"),
        *("--host", "127.0.0.1", "--port", "8000"),
    ]
    assert how.served.model_name == "tuned"
    whole = served(model._replace(merged=tmp_path / "merged"), Server.TRAJKIT)
    assert shlex.split(whole.command)[:5] == ["trajkit", "serve", str(tmp_path / "merged"), "--name", "tuned"]
    flags = {word for word in shlex.split(how.command) if word.startswith("--")}
    assert {flag[2:].replace("-", "_") for flag in flags} <= set(inspect.signature(trajkit.serve).parameters)


def test_at_the_stand_ins_address_the_local_stack_serves_it(tmp_path: Path) -> None:
    how = served(adapter(tmp_path), Server.VLLM, f"http://{STAND_IN_HOST}/v1/")
    assert shlex.split(how.command) == ["trajkit", "up", "--serve", f"{tmp_path / 'my model'}=tuned"]
    assert (how.served.model_name, how.served.provider) == ("tuned", "trajkit")


def test_the_server_is_vllm_where_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("trajkit.registry.local_server._AMD", tmp_path / "kfd")
    assert default_server() == Server.TRAJKIT
    (tmp_path / "kfd").touch()
    assert default_server() == Server.VLLM
    monkeypatch.setattr("trajkit.registry.local_server._AMD", tmp_path / "none")
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    assert default_server() == Server.VLLM


def test_a_merged_model_is_served_instead_of_the_adapter(tmp_path: Path) -> None:
    model = adapter(tmp_path, use_dora=True)._replace(merged=tmp_path / "merged")
    how = served(model, Server.VLLM)
    assert how.command.startswith(f"vllm serve {tmp_path}/merged --served-model-name tuned ")


def test_transformers_serves_a_whole_model_under_the_name_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    how = served(LocalModel("tuned", "some/base", folder), Server.TRANSFORMERS, "http://box:9000/v1/")
    assert how.command == f"transformers serve {folder} --host 0.0.0.0 --port 9000"
    assert (how.served.name, how.served.model_name) == ("in-config", str(folder))
    assert "json_mode" in how.notes[0]


@pytest.mark.full
def test_the_options_of_transformers_serve_are_those_that_it_has(tmp_path: Path) -> None:
    how = served(LocalModel("tuned", "some/base", tmp_path), Server.TRANSFORMERS)
    told = subprocess.run(
        [BIN / "transformers", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = re.findall(r"--[a-z-]+", how.command)
    assert options == ["--host", "--port"]
    assert all(f"{option} " in told for option in options)
    assert "FORCE_MODEL" in told


@pytest.mark.parametrize(
    ("config", "server", "words"),
    [
        ({"use_dora": True}, Server.VLLM, "DoRA"),
        ({"r": 1024}, Server.VLLM, "rank 1024"),
        ({}, Server.TRANSFORMERS, "is an adapter, and `transformers serve` loads only whole models"),
    ],
)
def test_what_a_server_cannot_load_is_said_with_the_way_out(
    tmp_path: Path, config: dict[str, object], server: Server, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        served(adapter(tmp_path, **config), server)
    assert "--merge" in (caught.value.hint or "")


def test_a_damaged_adapter_is_named(tmp_path: Path) -> None:
    model = adapter(tmp_path)
    (model.folder / "adapter_config.json").write_text("{")
    with pytest.raises(RequestError, match=r"adapter_config\.json cannot be read"):
        served(model, Server.VLLM)
