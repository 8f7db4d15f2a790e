"""Files as other tools really write them, through the command: each is read, or named with a reason."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.formats.exchange import conversation, whole
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.curation.pair_file import open_pairs
from trajkit.formats.hf_messages import HF_MESSAGES
from trajkit.schema import Episode, FileBlock, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock
from trajkit.sources.files.importing import Wish, import_files
from trajkit.store.dataset import open_dataset

TOOL = {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}
ASKED = {"role": "user", "content": "a"}
ANSWERED = {"role": "assistant", "content": "b"}
TURNS = [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def episodes(*rows: Any, options: tuple[str, ...] = ()) -> list[Episode]:
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run(["import", "a.jsonl", "-o", "store", *options]) == 0
    return list(open_dataset("store"))


def refused(row: Any, capsys: pytest.CaptureFixture[str], *options: str, code: int = 1) -> str:
    Path("a.jsonl").write_text(row if isinstance(row, str) else json.dumps(row))
    assert run(["import", "a.jsonl", "-o", "store", *options]) == code
    assert not Path("store").exists()
    return capsys.readouterr().err


def part(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "value": value}


LOOK = json.dumps({"name": "look", "arguments": {"at": 1}})
LLAMA_FACTORY = {
    "messages": [
        {"role": "system", "content": [part("text", "s")], "loss_weight": 0.0},
        {
            "role": "user",
            "content": [part("text", "u"), part("image_url", "a.png")],
            "loss_weight": 0.0,
        },
        {"role": "assistant", "content": [part("text", "no")], "loss_weight": 0.0},
        {"role": "user", "content": [part("text", "v")], "loss_weight": 0.0},
        {
            "role": "assistant",
            "content": [part("reasoning", "r"), part("tool_call", LOOK)],
            "loss_weight": 1.0,
        },
        {"role": "tool", "content": [part("text", "seen")], "loss_weight": 0.0},
        {"role": "assistant", "content": [part("text", "done")], "loss_weight": 1.0},
    ],
    "tools": json.dumps([TOOL]),
}


def test_a_file_of_llama_factory_v1_is_read_with_calls_thoughts_and_weights() -> None:
    (episode,) = episodes(LLAMA_FACTORY)
    first, second, third = episode.steps
    assert first.messages is not None
    assert first.messages[1].content == (
        TextBlock(text="u"),
        FileBlock(source_url="a.png", mime_type="image/*"),
    )
    assert (first.loss_weight, first.mask_reason) == (0, "loss_weight 0 in the file")
    assert second.completion is not None
    assert second.completion.content == (
        ThoughtBlock(text="r"),
        ToolCallBlock(id="call_1", name="look", arguments='{"at":1}'),
    )
    assert third.messages is not None
    assert third.messages[0].content == (ToolResultBlock(id="call_1", name="look", result="seen"),)
    assert [tool["name"] for tool in third.tools or ()] == ["look"]


def test_tools_among_the_parts_of_llama_factory_are_the_tools() -> None:
    (episode,) = episodes(
        {
            "messages": [
                {"role": "system", "content": [part("text", "s"), part("tools", json.dumps([TOOL]))]},
                {"role": "assistant", "content": [part("text", "x")]},
            ]
        }
    )
    assert [tool["name"] for tool in episode.steps[0].tools or ()] == ["look"]


ANTHROPIC = {
    "system": "s",
    "tools": [{"name": "look", "input_schema": TOOL["parameters"]}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "u"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "seen"}],
                },
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "assistant", "content": "done"},
    ],
}


def test_calls_and_results_of_anthropic_are_calls_and_results() -> None:
    (episode,) = episodes(ANTHROPIC)
    first, second = episode.steps
    assert first.messages is not None
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.completion is not None
    assert [type(block) for block in first.completion.content] == [ThoughtBlock, TextBlock, ToolCallBlock]
    assert second.messages is not None
    assert [message.role for message in second.messages] == ["tool", "user"]
    assert second.messages[0].content == (ToolResultBlock(id="c1", name="look", result="seen"),)
    assert (second.tools or ())[0]["parameters"] == TOOL["parameters"]


def test_answers_of_which_nothing_is_understood_end_the_import(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"messages": [ASKED, {"role": "assistant", "content": [{"type": "strange", "words": "b"}]}]}
    assert "an answer of which nothing is understood" in refused(row, capsys)


def test_a_refusal_is_understood() -> None:
    assert len(episodes({"messages": [ASKED, {"role": "assistant", "content": None, "refusal": "no"}]})) == 1


def test_columns_become_metrics_and_the_task() -> None:
    rows = [
        {"messages": [ASKED, ANSWERED], "reward": 0.5, "task": "t", "metrics": {"steps": 3, "ok": True}},
        {"messages": [ASKED, ANSWERED], "reward": 1, "task": "u", "metrics": {"steps": 4}},
    ]
    options = ("--metric", "reward=columns.reward", "--metric", "n=columns.metrics.steps")
    found = episodes(
        *rows,
        options=(
            *options,
            "--metric",
            "columns.metrics.ok",
            "--task",
            "columns.task",
            "--success",
            "reward >= 1",
        ),
    )
    by_task = {episode.task: episode for episode in found}
    assert by_task["t"].metrics == {"reward": 0.5, "n": 3, "ok": True}
    assert by_task["t"].outcome == "failure"
    assert by_task["u"].outcome == "success"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--success", "rewrd >= 1"], "which no document has"),
        (["--metric", "r=columns.rewrd"], "no document has 'columns.rewrd'"),
        (["--task", "columns.nothing"], "they have: columns.reward"),
        (["--tag", "customer=columns.nobody"], "no document has 'columns.nobody'"),
        (["--metric", "=x"], "is not NAME=PLACE"),
    ],
)
def test_a_name_that_no_document_has_is_an_error(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused({"messages": [ASKED, ANSWERED], "reward": 1}, capsys, *options, code=2)


def test_columns_become_tags() -> None:
    rows = [
        {"messages": [ASKED, ANSWERED], "customer": "c-7", "shop": 3},
        {"messages": [ASKED, ANSWERED], "customer": None, "shop": {"id": 4}},
    ]
    found = episodes(*rows, options=("--tag", "customer=columns.customer", "--tag", "columns.shop"))
    assert sorted((one.tags for one in found), key=len) == [
        {"shop": '{"id": 4}'},
        {"customer": "c-7", "shop": "3"},
    ]


def test_a_metric_that_is_no_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"messages": [ASKED, ANSWERED], "reward": "much"}
    assert "columns.reward: a metric that is not a number 'much'" in refused(
        row, capsys, "--metric", "columns.reward"
    )


PREFERENCES = {
    "TRL with texts": {"prompt": "a", "chosen": "b", "rejected": "c"},
    "TRL with messages": {
        "prompt": [ASKED],
        "chosen": [ANSWERED],
        "rejected": [{"role": "assistant", "content": "c"}],
    },
    "TRL without a prompt": {
        "chosen": [ASKED, ANSWERED],
        "rejected": [ASKED, {"role": "assistant", "content": "c"}],
    },
    "OpenAI": {
        "input": {"messages": [ASKED]},
        "preferred_output": [ANSWERED],
        "non_preferred_output": [{"role": "assistant", "content": "c"}],
    },
    "LLaMA-Factory": {
        "conversations": [{"from": "human", "value": "a"}],
        "chosen": {"from": "gpt", "value": "b"},
        "rejected": {"from": "gpt", "value": "c"},
    },
    "LLaMA-Factory v1": {
        "chosen_messages": [
            {"role": "user", "content": [part("text", "a")]},
            {"role": "assistant", "content": [part("text", "b")]},
        ],
        "rejected_messages": [
            {"role": "user", "content": [part("text", "a")]},
            {"role": "assistant", "content": [part("text", "c")]},
        ],
    },
    "Alpaca": {"instruction": "a", "input": "", "chosen": "b", "rejected": "c"},
}


@pytest.mark.parametrize("name", daily(PREFERENCES, {"OpenAI", "LLaMA-Factory v1", "Alpaca"}))
def test_a_preference_row_becomes_a_pair(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen, rejected = episodes(PREFERENCES[name])
    assert [chosen.metrics, rejected.metrics] == [{"preferred": 1.0}, {"preferred": 0.0}]
    said = capsys.readouterr().err
    command = said[said.index("trajkit pairs ") :].split("\n")[0].split()[1:]
    assert run([*command, "-o", "pairs"]) == 0
    (pair,) = open_pairs("pairs")
    texts = [side.completion.text for sides in (pair.chosen, pair.rejected) for side in sides]
    assert texts == ["b", "c"]
    assert [message.text for message in pair.prompt or ()] == ["a"]


def test_what_ends_in_no_answer_is_no_preference(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a side that does not end in an answer" in refused(
        {"prompt": "a", "chosen": [ASKED], "rejected": [ANSWERED]}, capsys
    )


def test_alpaca_is_read_with_its_input_and_history() -> None:
    row = {"instruction": "i", "input": "x", "output": "o", "history": [["p", "q"]], "lang": "en"}
    (episode,) = episodes(row)
    assert [step.completion.text for step in episode.steps if step.completion] == ["q", "o"]
    assert episode.steps[1].observation == "i\nx"
    assert episode.origin == {"file": "a.jsonl:1", "columns": {"lang": "en"}}


def test_a_call_of_sharegpt_may_be_tagged() -> None:
    texts = (
        "<function=look>\n<parameter=at>\n1\n</parameter>\n</function>",
        '<function=look>{"at": "1"}</function>',
        '{"name": "look", "arguments": {"at": "1"}}',
    )
    turns = [
        [("human", "u"), ("function_call", text), ("observation", "seen"), ("gpt", "done")] for text in texts
    ]
    found = episodes(
        *({"conversations": [{"from": who, "value": said} for who, said in row]} for row in turns)
    )
    assert len(found) == len(texts)
    for episode in found:
        assert episode.steps[0].completion is not None
        (call,) = episode.steps[0].completion.content
        assert isinstance(call, ToolCallBlock)
        assert (call.name, json.loads(call.arguments)) == ("look", {"at": "1"})


@pytest.mark.parametrize("column", ["messages", "conversation"])
def test_calls_in_the_text_of_a_chat_stay_text_and_are_counted(
    column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = {
        "role": "assistant",
        "content": "I look.\n<function=look>\n<parameter=at>1</parameter>\n</function>",
    }
    row = {"messages": [ASKED, called, {"role": "user", "content": "OBSERVATION: x"}, ANSWERED]}
    if column == "conversation":
        row["instance_id"] = "i"  # more than OpenAI's columns: a table of Hugging Face messages
    (episode,) = episodes(row)
    assert episode.steps[0].completion is not None
    assert episode.steps[0].completion.content == (TextBlock(text=called["content"]),)
    assert "1 answer with <function=NAME> stay text" in capsys.readouterr().err


MINE = """
from trajkit.formats.base import Document, EpisodeFormat
from trajkit.schema import Episode, Transition, message

def read(values):
    asked, answered = message("user", values[0]["q"]), message("assistant", "x")
    step = Transition(step_index=0, messages=(asked,), completion=answered)
    return Episode(episode_id=values[0]["id"], source="mine", steps=(step,))

MINE = EpisodeFormat(name="mine", about="mine", write=lambda episode: Document(()), read=read)
"""


def test_a_format_of_ones_own_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_format.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(folder))
    (episode,) = episodes({"id": "e", "q": "a"}, options=("--from", "my_format:MINE"))
    assert (episode.episode_id, episode.source) == ("e", "mine")
    Path("b.jsonl").write_text('{"id": "e"}')
    assert run(["import", "b.jsonl", "-o", "other", "--from", "my_format:MINE"]) == 1
    assert "mine cannot read it" in capsys.readouterr().err
    assert run(["import", "b.jsonl", "-o", "other", "--from", "my_format:NONE"]) == 2


NAMED = {
    "ids twice in one ADP file": (
        "an episode id that occurs twice",
        [{"id": "x", "content": [{"class_": "message_action", "content": str(n)}]} for n in range(2)],
    ),
    "an absolute path of a picture": (
        "a path that leads out of its folder",
        [
            {
                "id": "x",
                "content": [
                    {"class_": "image_observation", "content": "/etc/passwd"},
                    {"class_": "message_action", "content": "b"},
                ],
            }
        ],
    ),
    "an empty user message": (
        "an empty message of the user",
        [{"messages": [{**ASKED, "content": ""}, ANSWERED]}],
    ),
    "tools that are not JSON": (
        "tools that are not JSON",
        [{"messages": [ASKED, ANSWERED], "tools": "look, go"}],
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_cannot_be_read_has_a_named_reason(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, rows = NAMED[name]
    assert words in refused("\n".join(map(json.dumps, rows)), capsys)


def test_numbers_that_only_python_calls_numbers_are_left_out_with_skip_bad() -> None:
    places = (
        '{"role": "assistant", "content": "b", "weight": NUMBER}',
        '{"role": "assistant", "content": "b", "extra": NUMBER}',
        '{"role": "assistant", "content": [{"type": "x", "n": NUMBER}]}',
    )
    numbers = ("1e999", "-1e999", "1" * 400, "NaN")
    bad = [
        f'{{"messages": [{json.dumps(ASKED)}, {place.replace("NUMBER", number)}]}}\n'
        for place in places
        for number in numbers
    ]
    Path("a.jsonl").write_text(f"{''.join(bad)}{json.dumps({'messages': [ASKED, ANSWERED]})}\n")
    imported, _ = import_files("a.jsonl", Path("store"), Wish(skip_bad=True))
    assert imported.n_episodes == 1
    assert imported.left == {
        "cannot be read: a number that is too large": 9,
        "cannot be read: NaN or Infinity, which JSON does not have": 3,
    }


def test_a_table_of_hugging_face_with_dates_bytes_and_decimals_is_read() -> None:
    now = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "messages": [[ASKED, ANSWERED]],
            "at": pa.array([now], pa.timestamp("us", "UTC")),
            "day": [now.date()],
            "took": pa.array([now - now + datetime.timedelta(seconds=2)]),
            "picture": [{"bytes": b"\xff\xd8", "path": "a.jpg"}],
            "score": [float("nan")],
            "most": [float("inf")],
            "money": pa.array([1], pa.decimal128(5, 2)),
            "by": pa.array([[("k", now)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
            "kind": pa.array(["x"]).dictionary_encode(),
        }
    )
    pq.write_table(table, "a.parquet")
    assert run(["import", "a.parquet", "-o", "store"]) == 0
    (episode,) = open_dataset("store")
    assert episode.origin is not None
    columns = episode.origin["columns"]
    assert columns["at"] == "2026-11-24T12:00:00+00:00"
    assert columns["day"] == "2026-11-24"
    assert columns["money"] == 1.0
    assert columns["picture"]["bytes"]["n_bytes"] == 2
    assert "score" not in columns
    assert columns["by"] == {"k": "2026-11-24T12:00:00+00:00"}
    assert (columns["kind"], columns["most"]) == ("x", "inf")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference"),
        ({"instruction": "a", "input": "", "output": "b"}, "alpaca"),
        ({"conversations": TURNS}, "sharegpt"),
    ],
)
def test_a_format_is_recognised_by_the_columns_of_a_table(row: dict[str, Any], kind: str) -> None:
    pq.write_table(pa.Table.from_pylist([row]), "a.parquet")
    imported, _ = import_files("a.parquet", Path("store"), Wish())
    assert imported.format == kind


def test_rows_of_a_table_whose_messages_have_every_field_are_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"far": true}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "where?", "tool_calls": None, "tool_call_id": None},
        {"role": "assistant", "content": None, "tool_calls": [call], "tool_call_id": None},
        {"role": "tool", "content": "a key", "tool_calls": None, "tool_call_id": "c1"},
        {"role": "assistant", "content": "Here.", "tool_calls": None, "tool_call_id": None},
    ]
    pq.write_table(pa.Table.from_pylist([{"messages": messages, "score": 0.5}]), "train.parquet")
    imported, _ = import_files("train.parquet", Path("store"), Wish())
    assert (imported.format, imported.n_steps) == ("hf-messages", 2)
    (episode,) = open_dataset("store")
    assert episode.steps[0].action == [{"name": "look", "arguments": {"far": True}}]
    (result,) = (episode.steps[1].messages or ())[0].content
    assert isinstance(result, ToolResultBlock)
    assert result.name == "look"
    assert episode.origin == {"file": "train.parquet:1", "columns": {"score": 0.5}}


def test_json_columns_are_json_wherever_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    import datasets

    given = [whole(), conversation(episode_id="e2")]
    rows = [HF_MESSAGES.write(episode).values[0] for episode in given]
    features = datasets.Features(
        {
            "episode_id": datasets.Value("string"),
            "messages": datasets.List(datasets.Json()),
            "tools": datasets.List(datasets.Json()),
            "metadata": datasets.Json(),
        }
    )
    datasets.Dataset.from_list(rows, features=features).to_parquet("train.parquet")
    imported, _ = import_files("train.parquet", Path("store"), Wish())
    assert imported.n_exact == 2
    assert sorted(open_dataset("store"), key=lambda episode: episode.episode_id) == given


def test_an_array_in_one_file_is_its_rows() -> None:
    rows = [{"conversations": TURNS}, {"conversations": []}, {"conversations": TURNS}]
    Path("alpaca.json").write_text(json.dumps(rows))
    imported, _ = import_files("alpaca.json", Path("store"), Wish(skip_bad=True))
    assert (imported.format, imported.n_episodes) == ("sharegpt", 2)
    assert imported.left == {"cannot be read: not sharegpt": 1}
    assert imported.problems == ("alpaca.json:2: the document: not sharegpt",)
