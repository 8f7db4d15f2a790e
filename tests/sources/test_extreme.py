"""Rows that no database should hold and some do, through the whole export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.matrix import daily
from trajkit.cli.main import run as trajkit
from trajkit.errors import DataError
from trajkit.schema import ToolCallBlock
from trajkit.store.dataset import open_dataset

MILLION = 1_000_000
DEEP = 5_000
ALPHABET = 'abc "quoted" \\ back\nline é 漢 \U0001f642 <&> '


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def nested(depth: int) -> str:
    """JSON as text: no library need be asked whether it can make this."""
    return '{"a":[' * depth + "1" + "]}" * depth


@pytest.mark.full
def test_very_long_texts_control_characters_many_calls_and_many_tags_stay_as_they_are(
    rows: Any, run: Any
) -> None:
    long = (ALPHABET * (MILLION // len(ALPHABET) + 1))[:MILLION]
    odd = "".join(map(chr, range(32))) + "\x7f\u2028\ufeff"
    called = {"type": "tool_call", "raw_name": "move", "name": "move"}
    calls = [
        {**called, "id": f"c{n}", "raw_arguments": f'{{"n": {n}}}', "arguments": {"n": n}}
        for n in range(5_000)
    ]
    tags = {f"key {number}": "v" * (number % 7) for number in range(1_000)}
    episode_id = rows.id()
    rows.json_step(episode_id, raw=json.dumps({"action": long}), observation=long, tags=tags)
    rows.json_step(episode_id, raw=json.dumps({"action": odd}), observation=odd, tags=tags)
    rows.chat_step(episode_id, output=[{"type": "text", "text": long}], prompt=user(long), tags=tags)
    rows.chat_step(episode_id, output=calls, prompt=user("go"), tags=tags)
    _, episodes = run()
    assert episodes[episode_id].tags == tags
    prompts = list(episodes[episode_id].prompts())
    *acts, talk, move = episodes[episode_id].steps
    for step, text, prompt in zip(acts, (long, odd), prompts, strict=False):
        assert (step.action, step.observation, step.mask_reason) == (text, text, None)
        assert prompt[-1].text == f"Observation:\n{text}"
    assert (prompts[2][0].text, talk.completion.text, talk.mask_reason) == (long, long, None)
    assert move.completion.content == tuple(
        ToolCallBlock(id=f"c{n}", name="move", arguments=f'{{"n": {n}}}') for n in range(5_000)
    )
    assert move.action == [{"name": "move", "arguments": {"n": n}} for n in range(5_000)]
    assert move.mask_reason is None


@pytest.mark.full
def test_numbers_beyond_64_bits_keep_every_digit_in_texts(rows: Any, run: Any) -> None:
    big = "123456789012345678901234567890"
    arguments = f'{{"big":{big},"tiny":1e-400,"huge":1e400,"minus":-{big},"long":0.{big}{big}}}'
    output = (
        '[{"type":"tool_call","id":"c","raw_name":"f","raw_arguments":'
        f'{json.dumps(arguments)},"name":"f","arguments":{arguments.replace("1e400", "1e300")}}}]'
    )
    episode_id = rows.id()
    inference_id = rows.id()
    rows.insert(
        "ChatInference",
        id=inference_id,
        function_name="talk",
        variant_name="plain",
        episode_id=episode_id,
        input='{"messages":[{"role":"user","content":[{"type":"template","name":"user","arguments":'
        f'{{"n":{big}}}}}]}}]}}',
        output=output,
        tool_params="",
        inference_params="{}",
        tags={},
    )
    rows.call(inference_id, user=f"n is {big}", text=None)
    rows.json_step(episode_id, raw=f'{{"action":{big}}}')
    _, episodes = run()
    first, second = episodes[episode_id].steps
    assert first.completion is not None
    (call,) = first.completion.content
    assert isinstance(call, ToolCallBlock)
    assert call.arguments == arguments
    assert second.completion is not None
    assert second.completion.text == f'{{"action":{big}}}'
    assert float(second.action) == float(big)  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.parametrize("depth", daily([DEEP, 400, 50], 1))
def test_deep_nesting_is_kept_and_what_cannot_follow_it_names_the_episode(
    folder: Path, rows: Any, capsys: pytest.CaptureFixture[str], depth: int
) -> None:
    episode_id = rows.id()
    deep = nested(depth)
    inference_id = rows.id()
    content = f'{{"type":"template","name":"user","arguments":{{"observation":{deep}}}}}'
    logged = f'{{"messages":[{{"role":"user","content":[{content}]}}]}}'
    rows.insert(
        "JsonInference",
        id=inference_id,
        function_name="act",
        variant_name="baseline",
        episode_id=episode_id,
        input=logged,
        output=f'{{"raw":{json.dumps(deep)},"parsed":{{"action":{deep}}}}}',
        output_schema="{}",
        inference_params="{}",
        tags={},
    )
    rows.call(inference_id, user="look", text=deep)
    other = rows.json_step(episode_id)
    assert trajkit(["export", "-o", "s"]) == 0
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT inference_id, input::VARCHAR, completion->>'$.content[0].text', loss_weight"
            " FROM 's/steps/*.parquet' ORDER BY step_index"
        ).fetchall()
    assert found[0] == (inference_id, logged, deep, 1)
    assert found[1][0] == other
    for command in ("info s", "stats s", "convert s --to openai-sft -o train.jsonl"):
        assert trajkit(command.split()) == 0, capsys.readouterr().err
    first_line = json.loads((folder / "train.jsonl").read_text().splitlines()[0])
    assert first_line["messages"][-1]["content"] == deep
    # Python's own parser follows about 1,000 levels, pydantic's about 250
    if depth > 100:
        with pytest.raises(DataError, match=episode_id):
            list(open_dataset(folder / "s"))
    assert trajkit(["show", "s", episode_id]) == (0 if depth < 100 else 1)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("where", daily(["input", "prompt", "metric", "output", "tag", "comment"], 1))
def test_bytes_that_are_no_text_are_named_by_their_id_and_kept_on_request(
    folder: Path, rows: Any, client: Any, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """ClickHouse's strings are bytes: it stores what it is given."""
    bad = r"x\xff\xc3("
    episode_id, inference_id, call_id = rows.id(), rows.id(), rows.id()

    def text(name: str, value: str) -> str:
        return f"'{value.replace('%', bad if where == name else 'ok')}'"

    content = '{"messages":[{"role":"user","content":[{"type":"text","text":"%"}]}]}'
    answer = '{"raw":"{\\\\"action\\\\":\\\\"%\\\\"}","parsed":{"action":"%"}}'
    prompt = '[{"role":"user","content":[{"type":"text","text":"%"}]}]'
    client.command(
        "INSERT INTO JsonInference (id, function_name, variant_name, episode_id, input, output,"
        " output_schema, inference_params, tags)"
        f" VALUES ('{inference_id}', 'act', 'baseline', '{episode_id}',"
        f" {text('input', content)}, {text('output', answer)}, '{{}}', '{{}}', map('k', {text('tag', '%')}))"
    )
    client.command(
        "INSERT INTO ModelInference (id, inference_id, raw_request, raw_response, model_name,"
        f" model_provider_name, input_messages, output) VALUES ('{call_id}', '{inference_id}', '', '', 'm',"
        f" 'p', {text('prompt', prompt)}, '[]')"
    )
    comment_id = rows.id()
    client.command(
        f"INSERT INTO CommentFeedback (id, target_id, target_type, value) VALUES ('{comment_id}',"
        f" '{episode_id}', 'episode', {text('comment', '%')})"
    )
    client.command(
        "INSERT INTO FloatMetricFeedback (id, target_id, metric_name, value) VALUES"
        f" ('{rows.id()}', '{episode_id}', {text('metric', 'metric %')}, 0.5)"
    )
    good = rows.episode(0.5)
    code = trajkit(["export", "-o", "s"])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert code == 1, said
    assert "not UTF-8" in said
    assert list(folder.iterdir()) == []
    assert trajkit(["export", "--max-bad", "1", "-o", "s"]) == 0, capsys.readouterr().err
    found = {episode.episode_id: episode for episode in open_dataset(folder / "s")}
    assert set(found) == {episode_id, good}
    assert found[good].steps[0].loss_weight == 1
