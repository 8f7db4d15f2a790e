"""Sessions of MLflow: a real tracking store and the answers of a real server, as `record.py` made them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sources import foreign, thirty
from tests.sources.mlflow import record
from tests.sources.reading import Reader, answer
from trajkit.errors import DataError, RequestError, ServiceError
from trajkit.formats.reading.document import Reading
from trajkit.schema import Episode, FileBlock, ThoughtBlock, ToolCallBlock, Transition
from trajkit.sources.calls import NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.files.importing import import_files
from trajkit.sources.mlflow.connect import SOURCE, SPANS_ELSEWHERE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

N_OTHERS = 5
"""Episodes of the experiment `shapes`: a session with two sub-agents, one without, and a lone trace."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return foreign.unpacked(record.FIXTURE, tmp_path_factory.mktemp("mlflow") / "mlflow.db")


@pytest.fixture
def changed(store: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the store in which something is different."""

    return partial(foreign.changed, store, tmp_path / "changed.db")


@pytest.fixture
def server() -> Iterator[str]:
    with foreign.replayed(record.API) as url:
        yield url


@pytest.fixture(scope="module")
def found(store: Path) -> dict[str, Episode]:
    return READ.episodes(store)


class TestMLflow(SourceContract):
    source = SOURCE
    n_episodes = 3 + N_OTHERS
    n_steps = 19

    @pytest.fixture(autouse=True)
    def _place(self, changed: Callable[..., Path]) -> None:
        most = "session_id LIKE 'babyai-%' AND session_id > 'babyai-002'"
        type(self).place = str(changed(f"DELETE FROM trace_info WHERE {most}"))


def test_thirty_episodes_come_back_and_the_server_and_the_store_say_the_same(
    store: Path, found: dict[str, Episode], server: str
) -> None:
    """But for the order of the metadata, which the server gives in none."""
    thirty.assert_same(READ.of_babyai(store), thirty.expected())
    assert READ.episodes(server) == found


def test_one_experiment_is_chosen_by_name(store: Path, server: str) -> None:
    for place in (f"sqlite:///{store}?experiment=shapes", f"{server}?experiment=shapes"):
        assert len(READ.episodes(place)) == N_OTHERS
    with pytest.raises(RequestError, match="no experiment 'weather'") as caught:
        READ.found(f"sqlite:///{store}?experiment=weather")
    assert caught.value.hint == "there are: Default, babyai, shapes"
    with pytest.raises(RequestError, match="unknown option run"):
        READ.found(f"sqlite:///{store}?run=1")


def test_a_session_has_its_turns_its_sub_agents_and_its_user(found: dict[str, Episode]) -> None:
    trip, searcher, reader = (one for name, one in found.items() if name.startswith("trip"))
    assert [step.agent_name for step in trip.steps] == ["lead", "lead", None]
    assert [step.n_prompt_kept for step in trip.steps] == [0, 2, 0]
    assert trip.tags == {"user_id": "ada", "team": "search"}
    assert [(searcher.steps[0].agent_name), (reader.steps[0].agent_name)] == ["searcher", "reader"]
    assert (searcher.origin or {})["parent_episode_id"] == "trip"
    assert (reader.origin or {})["parent_episode_id"] == searcher.episode_id
    (image,) = [one for one in (searcher.steps[0].messages or ())[0].content if isinstance(one, FileBlock)]
    assert (image.source_url or "").startswith("mlflow-attachment://")


def test_a_call_has_its_settings_tokens_cost_and_failure(found: dict[str, Episode]) -> None:
    first, _, refused = found["trip"].steps
    assert (first.extra or {})["settings"] == {"temperature": 0.5, "max_tokens": 64, "stop": ["END"]}
    assert (first.n_input_tokens, first.n_output_tokens, first.model_name) == (100, 7, "stand-in")
    assert (refused.extra or {})["error"] == "Error code: 400 - no such model"
    assert (refused.completion, refused.model_name) == (None, "refuse")
    assert [step.cost_usd for step in found["others"].steps] == [None, None, 0.75]


def test_the_other_apis_are_read(found: dict[str, Episode]) -> None:
    """The Responses API, a stream and Anthropic's messages, in one session."""
    responses, stream, anthropic = found["others"].steps
    assert [one.role for one in responses.messages or ()] == ["system", "user", "assistant", "tool"]
    assert responses.tools == ({"name": "count", "parameters": {"type": "object"}},)
    assert (responses.finish_reason, responses.n_input_tokens) == ("tool_calls", 11)
    assert answer(stream).text == "It rains."
    (call,) = [one for one in answer(stream).content if isinstance(one, ToolCallBlock)]
    assert (call.name, call.arguments) == ("umbrella", "{}")
    assert isinstance(answer(anthropic).content[0], ThoughtBlock)
    assert (anthropic.finish_reason, anthropic.n_output_tokens) == ("stop", 4)
    assert (anthropic.messages or ())[0].text == "Be kind."


def test_a_trace_in_no_session_is_an_episode_of_its_own(store: Path) -> None:
    (lone,) = [one for one in READ.found(store) if one.missing == (NO_SESSION,)]
    assert isinstance(lone.reading, Reading)
    assert lone.reading.episodes[0].n_steps == 1


def test_assessments_are_metrics_and_comments(found: dict[str, Episode]) -> None:
    """One that was overridden and one whose judge failed are kept, and count nothing."""
    trip = found["trip"]
    assert trip.metrics == {"helpful": True, "parts.facts": 5.0, "parts.style": 3.0}
    assert trip.steps[0].metrics == {"quality": 0.75}
    said = {
        (one.tags["name"], one.value, one.tags.get("type")) for one in trip.feedback if one.kind == "comment"
    }
    assert said == {
        ("helpful", "It found it.", None),
        ("tone", "friendly", None),
        ("expected_facts", '["it rains"]', "expectation"),
        ("expected_answer", "It rains.", "expectation"),
    }
    unused = (trip.origin or {})["unused_assessments"]
    assert [(one["name"], one.get("value"), one["valid"]) for one in unused] == [
        ("helpful", False, False),
        ("judge", None, True),
    ]


def test_the_same_session_id_in_two_experiments_is_two_sessions(changed: Callable[..., Path]) -> None:
    place = changed("UPDATE trace_info SET session_id = 'trip' WHERE session_id = 'babyai-003'")
    assert {"babyai/trip", "shapes/trip"} <= READ.episodes(place).keys()


def test_a_session_of_before_the_column_is_found_in_the_metadata(changed: Callable[..., Path]) -> None:
    place = changed(
        "INSERT INTO trace_request_metadata (request_id, key, value)"
        " SELECT request_id, 'mlflow.trace.session', session_id FROM trace_info WHERE session_id IS NOT NULL",
        "ALTER TABLE trace_info DROP COLUMN session_id",
    )
    assert len(READ.of_babyai(place)) == thirty.N_EPISODES


@pytest.fixture
def last_call(changed: Callable[..., Path], store: Path) -> Callable[..., Transition]:
    """The last call of the session `others`, logged with other attributes."""

    def change(**attributes: Any) -> Transition:
        with closing(sqlite3.connect(store)) as connection:
            (text,) = connection.execute(
                "SELECT content FROM spans WHERE name = 'Messages.create'"
            ).fetchone()
        span = json.loads(text)
        logged = {name.replace("__", "."): json.dumps(value) for name, value in attributes.items()}
        span["attributes"] = {"mlflow.spanType": span["attributes"]["mlflow.spanType"], **logged}
        text = json.dumps(span).replace("'", "''")
        place = changed(f"UPDATE spans SET content = '{text}' WHERE name = 'Messages.create'")
        return READ.episodes(place)["others"].steps[2]

    return change


def test_chat_messages_of_before_3_2_are_read(last_call: Callable[..., Transition]) -> None:
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    step = last_call(mlflow__spanInputs={"odd": 1}, mlflow__spanOutputs={}, mlflow__chat__messages=talk)
    assert [one.text for one in step.messages or ()] == ["Hi."]
    assert answer(step).text == "Hello."


def test_a_form_that_is_not_known_stays_verbatim(last_call: Callable[..., Transition]) -> None:
    step = last_call(mlflow__spanInputs={"odd": 1}, mlflow__spanOutputs={"even": 2}, mine="kept")
    assert (step.messages, step.completion) == (None, None)
    assert step.extra is not None
    assert (step.extra["request"], step.extra["response"]) == ({"odd": 1}, {"even": 2})
    assert step.extra["mine"] == "kept"


def test_spans_that_came_by_opentelemetry_are_read_by_their_own_attributes(
    last_call: Callable[..., Transition],
) -> None:
    said = {"role": "assistant", "parts": [{"type": "text", "content": "Hello."}]}
    asked = {"role": "user", "parts": [{"type": "text", "content": "Hi."}]}
    step = last_call(
        gen_ai__operation__name="chat",
        gen_ai__input__messages=json.dumps([asked]),
        gen_ai__output__messages=json.dumps([said]),
        gen_ai__usage__input_tokens=4,
    )
    assert [one.text for one in step.messages or ()] == ["Hi."]
    assert (answer(step).text, step.n_input_tokens) == ("Hello.", 4)


@pytest.mark.parametrize(
    ("content", "kind"),
    [("{", "not JSON"), ("[]", "not an object"), ('{"span_id": "?"}', "not an id in base64")],
)
def test_a_damaged_span_is_the_problem_of_its_session(
    changed: Callable[..., Path], content: str, kind: str
) -> None:
    found = READ.found(changed(f"UPDATE spans SET content = '{content}' WHERE name = 'Messages.create'"))
    (wrong,) = [one for one in found if one.problem is not None]
    assert (wrong.place, wrong.problem and wrong.problem.kind) == ("shapes/others", kind)
    assert sum(one.reading is not None for one in found) == thirty.N_EPISODES + 2


def test_what_is_no_session_of_an_agent_is_left_out_and_counted(
    changed: Callable[..., Path], tmp_path: Path
) -> None:
    place = changed(
        "INSERT INTO trace_tags (request_id, key, value)"
        " SELECT request_id, 'mlflow.trace.sourceScorer', 'judge' FROM trace_info"
        " WHERE session_id = 'babyai-000'",
        "DELETE FROM spans WHERE trace_id IN"
        " (SELECT request_id FROM trace_info WHERE session_id = 'babyai-001')",
        "UPDATE spans SET content = replace(content, 'CHAT_MODEL', 'EMBEDDING')"
        " WHERE trace_id IN (SELECT request_id FROM trace_info WHERE session_id = 'babyai-002')",
        "DELETE FROM spans WHERE trace_id ="
        " (SELECT request_id FROM trace_info WHERE session_id = 'others' LIMIT 1)",
    )
    report, _ = import_files(place, tmp_path / "store", Wish())
    assert report.left == {
        "its spans are in files, not in the tracking store": 1,
        "it has no model call": 1,
        "traces of a judge, not of the agent": 1,
    }
    assert report.missing[SPANS_ELSEWHERE] == 1


def test_an_old_schema_is_refused_with_what_is_known(changed: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no table spans") as caught:
        READ.found(changed("DROP TABLE spans"))
    assert "trajkit reads versions" in (caught.value.hint or "")
    with pytest.raises(DataError, match="the table assessments has no column valid"):
        READ.found(changed("ALTER TABLE assessments DROP COLUMN valid"))


def test_a_store_is_recognised_by_its_tables(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE spans (x)")
    assert recognised(str(store)) == "mlflow"
    assert recognised(f"sqlite:///{store}") == "mlflow"
    assert recognised(str(other)) is None
    with pytest.raises(RequestError, match="there is no file"):
        READ.found(f"sqlite:///{tmp_path / 'none.db'}")


def test_a_server_is_asked_for_what_is_later_and_for_all_of_its_sessions() -> None:
    asked: list[tuple[str, str]] = []

    def answer(method: str, path: str, body: str) -> tuple[int, str]:
        asked.append((path, body))
        if path.endswith("experiments/search"):
            return 200, json.dumps({"experiments": [{"experiment_id": "1", "name": "babyai"}]})
        if path.endswith("traces/search"):
            info: dict[str, Any] = {"trace_id": "tr-1", "trace_metadata": {"mlflow.trace.session": "it's"}}
            info["trace_location"] = {"mlflow_experiment": {"experiment_id": "1"}}
            is_first = "page_token" not in body and "timestamp_ms >=" in body
            return 200, json.dumps({"traces": [info], **({"next_page_token": "2"} if is_first else {})})
        return 200, json.dumps({"traces": []})

    with foreign.answering(answer) as url:
        READ.found(url, Wish(since=datetime(2026, 11, 2, tzinfo=UTC)))
    filters = [json.loads(body).get("filter") for path, body in asked if path.endswith("traces/search")]
    day_before = int((datetime(2026, 11, 2, tzinfo=UTC) - timedelta(days=1)).timestamp() * 1000)
    assert filters == [*[f"timestamp_ms >= {day_before}"] * 2, 'metadata.`mlflow.trace.session` = "it\'s"']
    assert asked[-1][0] == "/api/3.0/mlflow/traces/batchGet?trace_ids=tr-1"


def test_keys_come_from_the_environment_and_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "very-secret-token-1")
    with foreign.answering(lambda *_: (401, "no: very-secret-token-1")) as url:
        with pytest.raises(ServiceError, match=r"refused .* \(HTTP 401\)") as caught:
            READ.found(url.replace("//", "//ada:pass-word-9@"))
        assert "MLFLOW_TRACKING_TOKEN" in (caught.value.hint or "")
    assert "secret" not in str(caught.value)
    assert "pass-word" not in str(caught.value)
    with pytest.raises(ServiceError, match="cannot be reached"):
        READ.found("http://127.0.0.1:9")


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_real_server_of_today_is_read_as_its_record_was(tmp_path: Path) -> None:
    """Installs MLflow anew and plays the thirty episodes through its client."""
    place, played = record.record(tmp_path)
    thirty.assert_same(READ.of_babyai(place), played)
    assert len(READ.episodes(place)) == thirty.N_EPISODES + N_OTHERS
