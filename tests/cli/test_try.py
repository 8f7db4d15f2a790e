"""`trajkit try`: recorded answer, base and tuned model side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.tiny import byte_tokenizer, make_tiny
from trajkit.cli.main import run
from trajkit.commands.try_ import _lines
from trajkit.models.generation.old_names import old_names
from trajkit.schema import Episode, Message, Transition, message
from trajkit.schema.content import ToolCallBlock
from trajkit.store.writer import write_episodes
from trajkit.training.question import Answered

SHORT = ("--max-new-tokens", "8")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def adapter(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what is said."""
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(0)
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj", "down_proj"], r=4)
    with old_names():
        made = peft.get_peft_model(model, config)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    folder = tmp_path_factory.mktemp("models") / "adapter"
    made.save_pretrained(folder)
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    call = ToolCallBlock(id="c1", name="move", arguments='{"to":"left"}')
    steps = (
        Transition(
            step_index=0,
            messages=(message("system", "Play."), message("user", "You see a ball. ")),
            completion=message("assistant", "left"),
            variant_name="history",
        ),
        Transition(
            step_index=1,
            n_prompt_kept=3,
            messages=(message("user", "You see a key. "),),
            completion=Message(role="assistant", content=(call,)),
            tools=({"name": "move", "description": "", "parameters": {"type": "object"}, "strict": False},),
        ),
        Transition(step_index=2, messages=None, completion=message("assistant", "right")),
    )
    episode = Episode(episode_id="0199-a", source="test", env_id="walk", task="go", seed=7, steps=steps)
    write_episodes(tmp_path / "episodes", [episode], kind="test")
    return tmp_path / "episodes"


def answers(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed)["answers"]
    return found


@pytest.mark.usefixtures("store")
def test_three_answers_to_one_prompt_are_the_recorded_one_and_what_transformers_says(
    adapter: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import peft
    import torch
    import transformers

    assert run(["try", str(adapter), "episodes", "0:0", "--json", *SHORT]) == 0
    printed = capsys.readouterr()
    recorded, first, tuned = answers(printed.out)
    assert [each["by"] for each in (recorded, first, tuned)] == ["recorded", "base", "tuned"]
    assert (recorded["text"], recorded["model"], recorded["n_tokens"]) == ("left", "history", 5)
    assert (first["model"], tuned["model"]) == (base, str(adapter))
    assert first["text"] != tuned["text"]
    assert "step 0 of 0 to 2" in printed.err
    assert "You see a ball." in printed.err
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    ids = torch.tensor([tokenizer.encode("Play.You see a ball. ")])
    for said, is_tuned in ((first, False), (tuned, True)):
        asked = transformers.AutoModelForCausalLM.from_pretrained(base).eval()
        if is_tuned:
            with old_names():
                asked = peft.PeftModel.from_pretrained(asked, adapter).eval()
        line = ids
        for _ in range(8):
            line = torch.cat([line, asked(input_ids=line).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        new = line[0, ids.shape[1] :].tolist()
        stop = tokenizer.eos_token_id
        assert said["text"] == tokenizer.decode(new[: new.index(stop)] if stop in new else new)
        assert said["is_cut"] == (stop not in new)


@pytest.mark.full
@pytest.mark.usefixtures("store")
def test_sampling_follows_its_seed(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for seed in ("1", "1", "2"):
        options = ("--temperature", "1", "--n", "3", "--seed", seed)
        assert run(["try", str(adapter), "episodes", "0:0", "--json", *SHORT, *options]) == 0
        found.append([each["text"] for each in answers(capsys.readouterr().out)])
    assert len(found[0]) == 7
    assert found[0] == found[1] != found[2]


@pytest.mark.usefixtures("store")
def test_a_prompt_with_tools_names_them(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", str(adapter), "episodes", "0199:1", "--json", *SHORT]) == 0
    printed = capsys.readouterr()
    assert "tools: move" in printed.err
    document = json.loads(printed.out)
    assert [tool["function"]["name"] for tool in document["tools"]] == ["move"]
    assert [each["role"] for each in document["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.usefixtures("store")
def test_a_whole_model_needs_its_base_named(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", base, "episodes", "0:0", "--json", *SHORT]) == 0
    assert [each["by"] for each in answers(capsys.readouterr().out)] == ["recorded", "tuned"]
    assert run(["try", base, "episodes", "0:0", "--base", base, "--json", *SHORT]) == 0
    _, first, tuned = answers(capsys.readouterr().out)
    assert first["text"] == tuned["text"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("episodes", "0:9"), "it has steps 0 to 2"),
        (("episodes", "0:2"), "the prompt of step 2"),
        (("episodes", "0"), "is not EPISODE:STEP"),
        (("episodes", "7:0"), "episode"),
        (("nowhere", "0:0"), "nowhere"),
        (("episodes", "0:0", "--n", "2"), "--temperature 1"),
        (("episodes", "0:0", "--max-new-tokens", "5000"), "takes 4,096 with the answer"),
    ],
)
def test_what_cannot_be_asked_is_said(
    adapter: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", str(adapter), *arguments]) in (1, 2)
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_folder_that_is_no_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["try", "empty", "episodes", "0:0"]) == 2
    assert "empty is neither an adapter nor a model" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_the_answers_are_a_table(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", str(adapter), "episodes", "0:0", *SHORT]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split() == ["answer", "model", "tokens", "text"]
    assert lines[2].split() == ["recorded", "history", "5", "left"]
    assert [line.split()[0] for line in lines if line[:1].strip()] == [
        "answer",
        "--------",
        "recorded",
        "base",
        "tuned",
    ]
    assert "…" not in printed.out or "--max-new-tokens for more" in printed.err


def test_an_answer_goes_on_below_itself_where_a_terminal_ends() -> None:
    said = Answered("tuned", "tiny", "one two three four five\nsix", 7, is_cut=True)
    assert _lines(said, None) == ["one two three four five", "six …"]
    assert _lines(said, 12) == ["one two", "three four", "five", "six …"]
    assert _lines(Answered("base", "tiny", "", 1), 12) == ["(nothing)"]
    assert _lines(Answered("base", "tiny", "", None, problem="not served"), 12) == ["no answer: not served"]


@pytest.mark.usefixtures("store")
def test_an_adapter_of_another_model_says_so(
    adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    other = tmp_path / "other"
    config = transformers.LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(other)
    byte_tokenizer(other)
    assert run(["try", str(adapter), "episodes", "0:0", "--base", str(other)]) == 2
    assert "the adapter" in capsys.readouterr().err
    shutil.copytree(adapter, tmp_path / "damaged")
    (tmp_path / "damaged" / "adapter_config.json").write_text("{")
    assert run(["try", "damaged", "episodes", "0:0"]) == 1
    assert "is damaged" in capsys.readouterr().err


class Chat(BaseHTTPRequestHandler):
    """A chat API that knows one model, and says what it was asked."""

    asked: list[dict[str, Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        if body["model"] != "ft:base:me":
            self._say(404, {"error": {"message": f"no model {body['model']}"}})
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": "left"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        self._say(
            200,
            {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [choice],
                "usage": usage,
            },
        )

    def _say(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def hosted(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Chat]]:
    """A job that a service tuned, and the service."""
    Chat.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    zeros = {"n_episodes": 1, "n_steps": 1, "n_learned": 1, "n_rows": 1, "n_tokens": 1, "n_learned_tokens": 1}
    job = {
        "job_id": "tuned",
        "key": "0" * 64,
        "target": "openai",
        "base": "base",
        "recipe": {},
        "train": {"store": "episodes", "digest": "0" * 64, "longest": 1, **zeros},
        "created_at": "2026-11-21T00:00:00Z",
        "status": "succeeded",
        "remote": {"where": url, "settings": {"profile": "other", "base_url": url}},
        "result": {"model": "ft:base:me"},
    }
    Path("runs/tuned").mkdir(parents=True)
    Path("runs/tuned/job.json").write_text(json.dumps(job))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    yield Chat
    server.shutdown()
    server.server_close()


def test_a_service_is_not_asked_without_a_yes(hosted: type[Chat], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "tuned", "episodes", "0:0"]) == 2
    printed = capsys.readouterr()
    assert "requests  2 requests" in printed.err
    assert "--yes" in printed.err
    assert run(["try", "tuned", "episodes", "0:0", "--dry-run"]) == 0
    assert hosted.asked == []


def test_a_service_answers_for_both_models(hosted: type[Chat], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "tuned", "episodes", "0:1", "--yes", "--json", *SHORT]) == 0
    printed = capsys.readouterr()
    recorded, first, tuned = answers(printed.out)
    assert recorded["text"] == 'move({"to":"left"})'
    assert "no model base" in first["problem"]
    assert (tuned["text"], tuned["n_tokens"]) == ("left", 1)
    assert {each["model"] for each in hosted.asked} == {"base", "ft:base:me"}
    last = hosted.asked[-1]
    assert (last["temperature"], last["max_tokens"]) == (0.0, 8)
    assert [tool["function"]["name"] for tool in last["tools"]] == ["move"]
    assert last["messages"][-1] == {"role": "user", "content": "You see a key. "}
    assert "sk-secret" not in printed.out + printed.err
