"""`trajkit try`: recorded answer, base and tuned model side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters import make_adapter
from tests.cli.jobs import a_job
from tests.rollouts.loopback import Reply, Server, refused, said, serve
from tests.tiny import byte_tokenizer
from trajkit.cli.main import run
from trajkit.commands.try_ import _lines
from trajkit.models.generation.weights import old_names
from trajkit.schema import Episode, Message, Transition, message
from trajkit.schema.content import ToolCallBlock
from trajkit.store.writer import write_episodes
from trajkit.training.question import Answered

SHORT = ("--max-new-tokens", "8")


@pytest.fixture(scope="module")
def adapter(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what is said."""
    return Path(make_adapter(base, tmp_path_factory.mktemp("models") / "adapter", loudness=0.5))


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Path:
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
    for told, is_tuned in ((first, False), (tuned, True)):
        asked = transformers.AutoModelForCausalLM.from_pretrained(base).eval()
        if is_tuned:
            with old_names():
                asked = peft.PeftModel.from_pretrained(asked, adapter).eval()
        line = ids
        for _ in range(8):
            line = torch.cat([line, asked(input_ids=line).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        new = line[0, ids.shape[1] :].tolist()
        stop = tokenizer.eos_token_id
        assert told["text"] == tokenizer.decode(new[: new.index(stop)] if stop in new else new)
        assert told["is_cut"] == (stop not in new)


@pytest.mark.full
def test_sampling_follows_its_seed(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for seed in ("1", "1", "2"):
        options = ("--temperature", "1", "--n", "3", "--seed", seed)
        assert run(["try", str(adapter), "episodes", "0:0", "--json", *SHORT, *options]) == 0
        found.append([each["text"] for each in answers(capsys.readouterr().out)])
    assert len(found[0]) == 7
    assert found[0] == found[1] != found[2]


def test_a_prompt_with_tools_names_them(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", str(adapter), "episodes", "0199:1", "--json", *SHORT]) == 0
    printed = capsys.readouterr()
    assert "tools: move" in printed.err
    document = json.loads(printed.out)
    assert [tool["function"]["name"] for tool in document["tools"]] == ["move"]
    assert [each["role"] for each in document["messages"]] == ["system", "user", "assistant", "user"]


def test_a_whole_model_needs_its_base_named(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", base, "episodes", "0:0", "--json", *SHORT]) == 0
    assert [each["by"] for each in answers(capsys.readouterr().out)] == ["recorded", "tuned"]
    assert run(["try", base, "episodes", "0:0", "--base", base, "--json", *SHORT]) == 0
    _, first, tuned = answers(capsys.readouterr().out)
    assert first["text"] == tuned["text"]


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


def test_a_folder_that_is_no_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["try", "empty", "episodes", "0:0"]) == 2
    assert "empty is neither an adapter nor a model" in capsys.readouterr().err


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
    told = Answered("tuned", "tiny", "one two three four five\nsix", 7, is_cut=True)
    assert _lines(told, None) == ["one two three four five", "six …"]
    assert _lines(told, 12) == ["one two", "three four", "five", "six …"]
    assert _lines(Answered("base", "tiny", "", 1), 12) == ["(nothing)"]
    assert _lines(Answered("base", "tiny", "", None, problem="not served"), 12) == ["no answer: not served"]


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


def answer(body: dict[str, Any], n: int) -> Reply:
    """What a service says that knows one model."""
    if body["model"] != "ft:base:me":
        return Reply(refused(f"no model {body['model']}"), 404)
    return Reply(said("left", usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}))


@pytest.fixture
def hosted(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A job that a service tuned, and the service."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serve(answer) as server:
        remote = {"where": server.url, "settings": {"profile": "other", "base_url": server.url}}
        a_job(store, job_id="tuned", base="base", model="ft:base:me", remote=remote)
        yield server


def test_a_service_is_not_asked_without_a_yes(hosted: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "tuned", "episodes", "0:0"]) == 2
    printed = capsys.readouterr()
    assert "requests  2 requests" in printed.err
    assert "--yes" in printed.err
    assert run(["try", "tuned", "episodes", "0:0", "--dry-run"]) == 0
    assert hosted.asked == []


def test_a_service_answers_for_both_models(hosted: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "tuned", "episodes", "0:1", "--yes", "--json", *SHORT]) == 0
    printed = capsys.readouterr()
    recorded, first, tuned = answers(printed.out)
    assert recorded["text"] == 'move({"to":"left"})'
    assert "no model base" in first["problem"]
    assert (tuned["text"], tuned["n_tokens"]) == ("left", 1)
    assert {each.body["model"] for each in hosted.asked} == {"base", "ft:base:me"}
    last = hosted.asked[-1].body
    assert (last["temperature"], last["max_tokens"]) == (0.0, 8)
    assert [tool["function"]["name"] for tool in last["tools"]] == ["move"]
    assert last["messages"][-1] == {"role": "user", "content": "You see a key. "}
    assert "sk-secret" not in printed.out + printed.err
