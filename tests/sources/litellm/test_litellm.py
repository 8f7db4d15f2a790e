"""Spend logs of the real LiteLLM proxy come back as the episodes that were played through it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.sources import thirty
from tests.sources.langfuse.server import file_of
from tests.sources.litellm import record
from tests.sources.reading import Reader, answer, written
from trajkit.errors import RequestError
from trajkit.formats.reading.document import Reading
from trajkit.schema import FileBlock, ThoughtBlock, ToolCallBlock
from trajkit.sources.calls import CUT_TEXT, NO_PROMPT, NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.files.importing import import_files
from trajkit.sources.litellm.connect import CUT_CHAIN, NO_ANSWER, NO_CALL, REDACTED, SOURCE
from trajkit.sources.wish import Wish
from trajkit.store.reader import open_store
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

SPECIAL = ("failed", "long", "thought", "picture", "cached", "responses", "anthropic", "unstored")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    text = gzip.decompress((record.DATA / f"{record.ROWS}.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def file(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("litellm") / "spend.jsonl", rows)


def row(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A row as an export of the table has it."""
    return {
        "request_id": f"call-{number}",
        "call_type": "acompletion",
        "session_id": "one",
        "startTime": f"2026-11-01T00:00:0{number}",
        "endTime": f"2026-11-01T00:00:0{number}.5",
        "model": "m",
        "spend": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "metadata": {},
        "request_tags": [],
        "messages": {},
        "response": {"choices": [{"message": {"role": "assistant", "content": "yes"}}]},
        "proxy_server_request": {
            "messages": [{"role": "user", "content": "really?"}],
            "litellm_session_id": "one",
        },
        **fields,
    }


class TestLiteLLM(SourceContract):
    source = SOURCE
    n_episodes = 14
    n_steps = 29

    @pytest.fixture(autouse=True)
    def _fixture(self, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
        chosen = [
            one
            for one in rows
            if not one["session_id"].startswith("babyai") or one["session_id"] < "babyai-005"
        ]
        type(self).place = str(written(tmp_path_factory.mktemp("contract") / "spend.jsonl", chosen))


def test_the_thirty_episodes_come_back_from_a_file(file: Path) -> None:
    thirty.assert_same(READ.of_babyai(file), thirty.expected(), has_metric=False)
    assert recognised(str(file)) == "litellm"


@pytest.mark.full
def test_the_thirty_episodes_come_back_from_a_csv_file(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "spend.csv"
    file.write_bytes(file_of(rows[::-1], ".csv"))
    thirty.assert_same(READ.of_babyai(file), thirty.expected(), has_metric=False)
    assert recognised(str(file)) == "litellm"
    step = READ.of_babyai(file)[0].steps[0]
    assert (step.n_input_tokens, step.cost_usd) == (100, pytest.approx(107 * record.PRICE))


def test_special_calls_keep_what_the_proxy_said_of_them(file: Path) -> None:
    read = READ.sound(file)
    assert set(SPECIAL) < read.keys()
    first = read["babyai-000"].steps[0]
    assert first.model_name == "hosted_vllm/stand-in"
    assert (first.n_input_tokens, first.n_output_tokens) == (100, 7)
    assert first.cost_usd == pytest.approx(107 * record.PRICE)
    assert first.extra is not None
    assert first.extra["settings"] == {"temperature": 0.5}
    assert first.extra["model_group"] == "agent"
    assert read["babyai-000"].tags == {"user": "default_user_id", "end_user": "player", "babyai": "true"}
    failed = read["failed"].steps[0]
    assert failed.completion is None
    assert "Cannot connect to host" in (failed.extra or {})["error"]
    assert failed.cost_usd is None
    thought = read["thought"].steps[0].completion
    assert thought is not None
    assert [one.text for one in thought.content if isinstance(one, ThoughtBlock)] == ["I add."]
    assert any(isinstance(one, FileBlock) for one in (read["picture"].prompt(0) or ())[0].content)
    assert [(one.cached, one.cost_usd) for one in read["cached"].steps] == [
        (None, pytest.approx(107 * record.PRICE)),
        (True, 0.0),
    ]
    assert (read["cached"].origin or {})["spend_logs_metadata"] == {"task": "cache"}


@pytest.mark.full
@pytest.mark.parametrize("name", ["responses", "anthropic"])
def test_other_apis_give_the_same_conversation(file: Path, name: str) -> None:
    (step,) = READ.sound(file)[name].steps
    assert [(one.role.value, one.text) for one in step.messages or ()] == [
        ("system", "Be brief."),
        ("user", "act"),
    ]
    assert answer(step).text == "I act."
    assert [one.name for one in answer(step).content if isinstance(one, ToolCallBlock)] == ["act"]
    assert step.finish_reason == "tool_calls"
    assert [tool["name"] for tool in step.tools or ()] == ["act"]


@pytest.mark.full
def test_what_was_not_stored_is_counted_and_fails_nothing(file: Path, tmp_path: Path) -> None:
    missing = {one.place.rpartition(" ")[2]: one.missing for one in READ.found(file)}
    assert missing["unstored"] == (NO_ANSWER, NO_PROMPT)
    assert missing["long"] == (CUT_TEXT,)
    assert missing["babyai-000"] == ()
    (unnamed,) = [name for name, lacks in missing.items() if lacks == (NO_SESSION,)]
    assert len(unnamed) == 36  # an id that LiteLLM made up
    report, _ = import_files(file, tmp_path / "store", Wish(format="litellm"))
    assert (report.n_episodes, report.n_steps) == (39, 163)


def test_no_key_or_address_of_a_client_is_in_a_store(file: Path) -> None:
    text = "".join(one.model_dump_json() for one in READ.sound(file).values())
    for word in (record.KEY, "user_api_key_auth", "litellm_proxy_master_key", "x-stainless", "traceback"):
        assert word not in text


def test_a_redacted_text_is_counted(tmp_path: Path) -> None:
    asked = {"messages": [{"role": "user", "content": "redacted-by-litellm"}], "litellm_session_id": "one"}
    (one,) = READ.found(written(tmp_path / "a.jsonl", [row(proxy_server_request=asked)]))
    assert one.missing == (REDACTED,)


def test_a_call_that_continues_a_response_has_the_whole_prompt(tmp_path: Path) -> None:
    def asked(text: str, previous: str | None = None) -> dict[str, Any]:
        return {
            "input": text,
            "instructions": "Be brief.",
            "litellm_session_id": "one",
            "previous_response_id": previous,
        }

    def said(number: int) -> dict[str, Any]:
        content = [{"type": "output_text", "text": f"answer {number}"}]
        message = {"type": "message", "role": "assistant", "content": content}
        return {"id": f"resp_{number}", "output": [message], "status": "completed"}

    chain = [
        row(0, call_type="aresponses", proxy_server_request=asked("first"), response=said(0)),
        row(1, call_type="aresponses", proxy_server_request=asked("second", "resp_0"), response=said(1)),
        row(2, call_type="aresponses", proxy_server_request=asked("lost", "resp_9"), response=said(2)),
    ]
    (one,) = READ.found(written(tmp_path / "a.jsonl", chain))
    assert one.missing == (CUT_CHAIN,)
    (episode,) = READ.sound(tmp_path / "a.jsonl").values()
    assert [message.text for message in episode.prompt(1) or ()] == [
        "Be brief.",
        "first",
        "answer 0",
        "second",
    ]
    assert [message.text for message in episode.prompt(2) or ()] == ["Be brief.", "lost"]


def test_rows_of_other_calls_are_set_aside(tmp_path: Path) -> None:
    (one,) = READ.found(written(tmp_path / "a.jsonl", [row(call_type="aembedding")]))
    assert one.aside == NO_CALL


def test_a_table_from_before_sessions_gives_one_episode_a_call(tmp_path: Path) -> None:
    old = [row(number) for number in range(2)]
    for each in old:
        for name in ("session_id", "proxy_server_request"):
            del each[name]
    read = READ.found(written(tmp_path / "a.jsonl", old))
    assert [one.missing for one in read] == [(NO_PROMPT, NO_SESSION)] * 2


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"startTime": "yesterday"}, "startTime"),
        ({"metadata": "{"}, "metadata"),
        ({"response": "[1]"}, "response"),
        ({"spend": "much"}, "spend"),
        ({"request_id": 3}, "request_id"),
    ],
)
def test_a_damaged_row_is_the_problem_of_its_session(
    fields: dict[str, Any], where: str, tmp_path: Path
) -> None:
    broken, well = READ.found(written(tmp_path / "a.jsonl", [row(**fields), row(1, session_id="two")]))
    assert broken.problem is not None
    assert broken.problem.where == where
    assert broken.place == "a.jsonl: session one"
    assert well.problem is None


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\nnonsense\n' + json.dumps(row()) + "\n", encoding="utf-8")
    read = READ.found(file)
    assert [(one.place, str(one.problem)) for one in read if one.problem] == [
        ("a.jsonl:1", "request_id: not a row of LiteLLM_SpendLogs"),
        ("a.jsonl:2", str(read[1].problem)),
    ]
    assert read[2].reading is not None


# -- Postgres ----------------------------------------------------------------------------------------------


def load(server: Any, name: str, rows: Sequence[dict[str, Any]], ddl: str) -> str:
    """Make a database as litellm's migrations do, with these rows; gives the URL of a reader."""
    server.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    server.run(f'CREATE DATABASE "{name}"')
    server.run(ddl, name)
    as_json = ("metadata", "request_tags", "messages", "response", "proxy_server_request")
    values = [{**one, **{each: json.loads(one[each]) for each in as_json}} for one in rows]
    columns = ", ".join(f'"{each}"' for each in rows[0])
    text = json.dumps(values).replace("$json$", "")
    server.run(
        f'INSERT INTO "LiteLLM_SpendLogs" ({columns}) SELECT {columns} FROM'
        f' json_populate_recordset(NULL::"LiteLLM_SpendLogs", $json${text}$json$);'
        ' GRANT SELECT ON "LiteLLM_SpendLogs" TO reader',
        name,
    )
    return str(server.url(name))


@pytest.fixture(scope="module")
def url(postgres_server: Any, rows: list[dict[str, Any]]) -> str:
    ddl = (record.DATA / record.TABLE).read_text(encoding="utf-8")
    return load(postgres_server, "litellm", rows[::-1], ddl)


def test_the_thirty_episodes_come_back_from_postgres(url: str, file: Path) -> None:
    thirty.assert_same(READ.of_babyai(url), thirty.expected(), has_metric=False)
    plain = {name: len(one.steps) for name, one in READ.sound(file).items()}
    assert {name: len(one.steps) for name, one in READ.sound(url).items()} == plain


def test_since_is_asked_of_the_database_and_whole_sessions_come(url: str) -> None:
    everything = READ.sound(url)
    last = everything["unstored"]
    assert last.ended_at is not None
    (only,) = READ.found(
        f"{url}?connection_limit=5&schema=public", Wish(since=last.ended_at.replace(microsecond=0))
    )
    assert only.place.endswith("session unstored")
    assert isinstance(only.reading, Reading)
    assert only.reading.episodes[0].n_steps == 2
    assert READ.found(url, Wish(since=datetime(2050, 1, 1, tzinfo=UTC))) == []


def test_the_password_is_in_no_place_and_a_database_of_another_system_is_named(
    url: str, postgres_server: Any, tmp_path: Path
) -> None:
    import_files(url, tmp_path / "store", Wish(format="litellm"))
    manifest = open_store(tmp_path / "store").manifest.model_dump_json()
    assert "p%40ss" not in manifest
    assert "p@ss" not in manifest
    postgres_server.run('DROP DATABASE IF EXISTS "other" WITH (FORCE)')
    postgres_server.run('CREATE DATABASE "other"')
    with pytest.raises(RequestError, match="has no readable table LiteLLM_SpendLogs"):
        READ.found(postgres_server.url("other"))
    postgres_server.run(
        'CREATE TABLE "LiteLLM_SpendLogs" (x int); GRANT SELECT ON "LiteLLM_SpendLogs" TO reader', "other"
    )
    with pytest.raises(RequestError, match="has no column request_id, call_type"):
        READ.found(postgres_server.url("other"))
    with pytest.raises(RequestError, match="are in Postgres"):
        READ.found("https://litellm.example")


@pytest.mark.full
def test_a_new_recording_through_the_real_proxy_comes_back(
    tmp_path: Path, postgres_server: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    new, played = record.record(tmp_path)
    url = load(postgres_server, "recorded", new, record.table(tmp_path))
    thirty.assert_same(READ.of_babyai(url), played, has_metric=False)
    assert set(SPECIAL) < READ.sound(url).keys()
