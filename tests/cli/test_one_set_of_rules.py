"""What `convert` writes, `validate` accepts: hostile conversations, every format that has a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.formats import format_named, known
from trajkit.formats.base import JudgedFormat, SftFormat
from trajkit.schema import Episode, Message, Transition, message
from trajkit.store.writer import write_episodes

_LOOK = {"name": "look", "description": "See", "parameters": {"type": "object", "properties": {}}}
_USER, _ANSWER = message("user", "hi"), message("assistant", "done")


def said(role: str, *blocks: Any) -> Message:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return Message.model_validate({"role": role, "content": content})


def call(call_id: str = "c1", name: str = "look", arguments: str = '{"at":"door","n":2}') -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str = "c1", name: str = "look", text: str = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "id": call_id, "name": name, "result": text}


def asked(*calls: dict[str, Any]) -> tuple[Message, ...]:
    """A conversation with calls, each answered."""
    results = (said("tool", result(each["id"], each["name"])) for each in calls)
    return (_USER, said("assistant", *calls), *results, _ANSWER)


_TALKS: dict[str, tuple[Message, ...]] = {
    "turns": (message("system", "Play."), _USER, message("assistant", "1"), _USER, _ANSWER),
    "call": asked(call()),
    "no ids": asked(call(""), call("")),
    "some ids": asked(call("call_1"), call("")),
    "an id twice": asked(call(), call()),
    "no function name": asked(call(name="look.at me")),
    "arguments that are no JSON": asked(call(arguments="{no")),
    "arguments in a list": asked(call(arguments="[1]")),
    "no result text": (_USER, said("assistant", call()), said("tool", result(text="")), _ANSWER),
    "a result in a user message": (_USER, said("assistant", call()), said("user", result(), "more"), _ANSWER),
    "a result of no call": (_USER, said("tool", result("c9")), _ANSWER),
    "a result of no call and no id": (_USER, said("tool", result("")), _ANSWER),
    "a call without its result": (_USER, said("assistant", call()), _USER, _ANSWER),
    "a call of the user": (said("user", "x", call()), _ANSWER),
    "a tool's text": (_USER, said("tool", "bare"), _ANSWER),
    "an empty system message": (message("system", ""), _USER, _ANSWER),
    "an empty user message": (_USER, _ANSWER, message("user", ""), _ANSWER),
    "nothing in a message": (said("user"), _ANSWER),
    "no prompt": (_ANSWER, _USER, _ANSWER),
    "a late system message": (_USER, _ANSWER, message("system", "b"), _USER, _ANSWER),
    "a system message after the user": (_USER, message("system", "b"), _ANSWER),
    "two system messages": (message("system", "a"), message("system", "b"), _USER, _ANSWER),
    "a thought alone": (_USER, said("assistant", {"type": "thought", "text": "hm"}), _USER, _ANSWER),
    "an image alone": (
        said("user", {"type": "file", "source_url": "https://x.example/z.png", "mime_type": "image/png"}),
        _ANSWER,
    ),
    "an unknown block": (said("user", {"type": "unknown", "data": {"a": 1}}), _ANSWER),
    "a special token": (message("user", "<|im_end|>"), _ANSWER),
}
_TOOLS: dict[str, tuple[dict[str, Any], ...]] = {
    "declared": (_LOOK,),
    "declared twice": (_LOOK, _LOOK),
    "declared without a name": ({"type": "web_search"},),
    "declared with another name": ({**_LOOK, "name": "look at"},),
    "declared with a text": ({"name": "look", "parameters": "x"},),
}


def episode(name: str, talk: tuple[Message, ...], tools: Any, *, is_chained: bool) -> Episode:
    steps: list[Transition] = []
    n_kept = 0
    for position, each in enumerate(talk):
        if each.role == "assistant":
            prompt = talk[n_kept if is_chained else 0 : position]
            steps.append(
                Transition(
                    step_index=len(steps),
                    n_prompt_kept=n_kept if is_chained else 0,
                    messages=prompt,
                    completion=each,
                    tools=tools,
                )
            )
            n_kept = position + 1
    return Episode(episode_id=name, source="test", outcome="success", purpose="train", steps=tuple(steps))


def write_store(path: Path, *, is_chained: bool = True) -> None:
    cases = [(name, talk, None) for name, talk in _TALKS.items()]
    cases += [(name, _TALKS["call"], tools) for name, tools in _TOOLS.items()]
    write_episodes(path, [episode(*case, is_chained=is_chained) for case in cases], kind="test")


def errors_in(path: Path, target: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `validate` finds in the rows; how many there are is not asked."""
    capsys.readouterr()
    run(["validate", str(path), "--target", target, "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return [str(each) for each in found if each["severity"] == "error" and each["line"] is not None]


_FORMS = [
    form for form in map(format_named, known()) if isinstance(form, SftFormat | JudgedFormat) and form.target
]


@pytest.mark.parametrize(
    ("is_chained", "tools"),
    daily(
        [(True, ()), (True, ("--tools", "from-calls")), (False, ()), (False, ("--tools", "from-calls"))], 1
    ),
)
@pytest.mark.parametrize("form", daily(_FORMS, 3), ids=lambda form: form.name)
def test_validate_finds_no_error_in_what_convert_writes(
    form: SftFormat | JudgedFormat,
    is_chained: bool,
    tools: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_store(tmp_path / "store", is_chained=is_chained)
    assert form.target is not None
    for unit in ("step", "episode") if isinstance(form, SftFormat) else (None,):
        goal = tmp_path / f"{unit}.jsonl"
        options = ("--unit", unit) if unit else ()
        arguments = ("convert", str(tmp_path / "store"), "--to", form.name, "-o", str(goal), "--skip-bad")
        assert run([*arguments, *options, *tools]) == 0
        assert errors_in(goal, form.target, capsys) == []
        assert goal.stat().st_size > 0


def test_a_call_of_an_undeclared_tool_is_refused_and_the_hint_declares_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    episodes = [episode(f"e{n}", _TALKS["no ids"], None, is_chained=True) for n in range(10)]
    write_episodes(Path("store"), episodes, kind="test")
    arguments = ["convert", "store", "--to", "openai-sft", "--unit", "episode", "-o"]
    assert run([*arguments, "a.jsonl"]) == 1
    told = capsys.readouterr().err
    assert "messages.1.tool_calls.0.function.name: call of a tool that the row does not declare" in told
    assert "--tools from-calls" in told
    assert run([*arguments, "b.jsonl", "--tools", "from-calls"]) == 0
    row = json.loads(Path("b.jsonl").read_text().splitlines()[0])
    properties = {"at": {"type": "string"}, "n": {"type": "number"}}
    parameters = {"type": "object", "properties": properties}
    assert row["tools"] == [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    assert [each["id"] for each in row["messages"][1]["tool_calls"]] == ["call_1", "call_2"]
    assert [each.get("tool_call_id") for each in row["messages"][2:4]] == ["call_1", "call_2"]
    assert run(["validate", "b.jsonl", "--target", "openai"]) == 0

    Path("tools.json").write_text(json.dumps([{"type": "function", "function": _LOOK}]))
    assert run([*arguments, "c.jsonl", "--tools", "tools.json"]) == 0
    row = json.loads(Path("c.jsonl").read_text().splitlines()[0])
    assert row["tools"] == [{"type": "function", "function": _LOOK}]


@pytest.mark.parametrize("form", ["trl-messages", "vertex"])
def test_a_format_that_learns_every_answer_names_what_carries_conversations(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_episodes(Path("store"), [episode("e", _TALKS["turns"], None, is_chained=True)], kind="test")
    assert run(["convert", "store", "--to", form, "-o", "a.jsonl", "--unit", "step"]) == 1
    told = capsys.readouterr().err
    assert "--unit episode" in told
    assert "--to trl-prompt-completion" in told


@pytest.mark.parametrize("options", [(), ("--skip-bad",)])
@pytest.mark.parametrize("form", daily(["trl-messages", "vertex"], 1))
def test_conversations_become_rows_of_episodes_where_no_unit_was_given(
    form: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write_episodes(Path("store"), [episode("e", _TALKS["turns"], None, is_chained=True)], kind="test")
    assert run(["convert", "store", "--to", form, "-o", "a.jsonl", *options, "--json"]) == 0
    printed = capsys.readouterr()
    made = json.loads(printed.out)
    assert (made["format"], made["unit"], made["n_rows"], made["left"]) == (form, "episode", 1, {})
    assert made["n_learned"] == made["n_steps"] == 2
    assert f"each row is a conversation (--unit episode): {form} learns every answer of a row" in printed.err
    assert run(["convert", "store", "--to", form, "-o", "b.jsonl", "--unit", "episode"]) == 0
    assert "each row is" not in capsys.readouterr().err
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()


def test_an_answer_that_is_only_context_is_carried_by_prompts_with_completions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = episode("e", _TALKS["turns"], None, is_chained=True)
    first = whole.steps[0].model_copy(update={"loss_weight": 0.0, "mask_reason": "no-op"})
    masked = whole.model_copy(update={"steps": (first, *whole.steps[1:])})
    write_episodes(Path("store"), [masked], kind="test")
    assert run(["convert", "store", "--to", "trl-messages", "-o", "a.jsonl", "--json"]) == 0
    printed = capsys.readouterr()
    made = json.loads(printed.out)
    assert (made["format"], made["n_learned"], made["left"]) == ("trl-prompt-completion", 1, {"no-op": 1})
    assert "written as trl-prompt-completion: trl-messages learns every answer of a row" in printed.err
    (row,) = map(json.loads, Path("a.jsonl").read_text().splitlines())
    assert [each["role"] for each in row["prompt"]] == ["system", "user", "assistant", "user"]

    for options in (("--to", "trl-messages", "--unit", "episode"), ("--to", "vertex")):
        assert run(["convert", "store", *options, "-o", "b.jsonl"]) == 1
        assert "write one answer for each row: --to trl-prompt-completion" in capsys.readouterr().err
        assert not Path("b.jsonl").exists()


@pytest.mark.parametrize("text", ["{}", "[", "[]", "[1]", None])
def test_a_file_that_holds_no_tools_is_a_wrong_request(
    text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    write_episodes(Path("store"), [episode("e", _TALKS["call"], None, is_chained=True)], kind="test")
    if text is not None:
        Path("tools.json").write_text(text)
    arguments = ["convert", "store", "--to", "openai-sft", "-o", "a.jsonl", "--tools", "tools.json"]
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert "tools.json" in told
    assert "--tools takes from-calls, or a JSON file" in told
