"""Sessions of Langfuse, from its tables, its export and its API, of what its real SDK sent."""

from __future__ import annotations

import copy
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources import foreign, thirty
from tests.sources.conftest import READER
from tests.sources.langfuse import record
from tests.sources.langfuse import server as langfuse
from tests.sources.reading import Reader, answer
from trajkit.errors import DataError, RequestError, ServiceError
from trajkit.formats.reading.document import Reading
from trajkit.schema import Episode, FileBlock, ThoughtBlock
from trajkit.sources.calls import CUT_TEXT, NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.files.found import Unread
from trajkit.sources.langfuse.connect import SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

N_OTHERS = 4
"""Episodes beside the thirty: a session with two sub-agents, and a lone trace."""


@pytest.fixture(scope="module")
def tables() -> langfuse.Tables:
    return langfuse.tables_of(record.recorded())


@pytest.fixture(scope="module")
def export(tables: langfuse.Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return langfuse.export(tmp_path_factory.mktemp("export"), tables, ".parquet")


@pytest.fixture(scope="module")
def found(export: Path) -> dict[str, Episode]:
    return READ.episodes(export)


@pytest.fixture(scope="module")
def database(server: Any, tables: langfuse.Tables) -> str:
    langfuse.create(server.ask, "langfuse3", "v3.sql")
    for name, rows in tables.items():
        langfuse.insert(server.ask, "langfuse3", name, rows)
    return str(server.url_for(READER, database="langfuse3"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-very-secret")


class TestLangfuse(SourceContract):
    source = SOURCE
    n_episodes = 3 + N_OTHERS
    n_steps = 17

    @pytest.fixture(autouse=True)
    def _place(self, tables: langfuse.Tables, tmp_path: Path) -> None:
        most = {one["id"] for one in tables["traces"] if "babyai-002" < str(one["session_id"]) < "babyai-999"}
        few = {
            name: [row for row in rows if row.get("trace_id", row["id"]) not in most]
            for name, rows in tables.items()
        }
        type(self).place = str(langfuse.export(tmp_path / "export", few, ".parquet"))


def test_thirty_episodes_come_back_from_the_tables_of_version_4(
    server: Any, database: str, tables: langfuse.Tables
) -> None:
    langfuse.create(server.ask, "langfuse4", "v3.sql", "v4.sql")
    langfuse.insert(server.ask, "langfuse4", "events_full", langfuse.events_of(tables))
    langfuse.insert(server.ask, "langfuse4", "scores", tables["scores"])
    url = server.url_for(READER, database="langfuse4")
    ours = plain(READ.episodes(url))
    thirty.assert_same(READ.of_babyai(url), thirty.expected())
    assert ours == plain(READ.episodes(database))  # of version 3


@pytest.mark.parametrize(
    "suffix",
    daily([".parquet", ".jsonl.gz", ".jsonl", ".json", ".csv", ".csv.gz"], 2),
)
@pytest.mark.parametrize("is_enriched", [True, False])
def test_thirty_episodes_come_back_from_an_export(
    tables: langfuse.Tables, tmp_path: Path, suffix: str, is_enriched: bool
) -> None:
    place = langfuse.export(tmp_path, tables, suffix, is_enriched=is_enriched)
    assert recognised(str(place)) == "langfuse"
    assert not [one for one in SOURCE.read(str(place), Wish()) if isinstance(one, Unread)]
    thirty.assert_same(READ.of_babyai(place), thirty.expected())


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("version", daily([3, 4], 1))
def test_thirty_episodes_come_back_from_the_api(tables: langfuse.Tables, version: int) -> None:
    with foreign.answering(langfuse.api(tables, version=version)) as url:
        thirty.assert_same(READ.of_babyai(url), thirty.expected())


@pytest.mark.full
@pytest.mark.usefixtures("keys")
def test_all_ways_say_the_same(database: str, tables: langfuse.Tables, found: dict[str, Episode]) -> None:
    ours = plain(READ.episodes(database))
    assert plain(found) == ours
    for version in (3, 4):
        with foreign.answering(langfuse.api(tables, version=version)) as url:
            assert plain(READ.episodes(url)) == ours


def plain(episodes: dict[str, Episode]) -> dict[str, Any]:
    """Episodes without metadata, which the API of version 4 cuts."""
    found = {}
    for name, one in episodes.items():
        value = one.model_dump(mode="json")
        value["origin"].pop("metadata", None)
        for step in value["steps"]:
            step["extra"].pop("metadata", None)
        found[name] = value
    return found


def test_a_session_has_its_traces_its_sub_agents_and_its_user(found: dict[str, Episode]) -> None:
    trip, searcher, reader = (one for name, one in found.items() if name.startswith("trip"))
    assert [step.agent_name for step in trip.steps] == ["lead", "lead", None, None]
    assert trip.tags == {"user_id": "ada", "version": "v7", "search": "true"}
    assert [searcher.steps[0].agent_name, reader.steps[0].agent_name] == ["searcher", "reader"]
    assert (searcher.origin or {})["parent_episode_id"] == "trip"
    assert (reader.origin or {})["parent_episode_id"] == searcher.episode_id
    assert (trip.origin or {})["trace_name"] == "lead"
    assert [type(one) for one in (searcher.steps[0].messages or ())[0].content][1] is FileBlock
    assert isinstance(answer(searcher.steps[0]).content[0], ThoughtBlock)


def test_a_call_has_its_settings_tokens_cost_prompt_and_failure(found: dict[str, Episode]) -> None:
    first, last, broken, _ = found["trip"].steps
    settings = (first.extra or {})["settings"]
    assert (settings["temperature"], settings["max_tokens"]) == (0.5, 64)
    assert (first.n_input_tokens, first.n_output_tokens, first.model_name) == (100, 7, "stand-in")
    assert (last.function_name, (last.extra or {})["prompt_version"]) == ("weather", 3)
    assert (last.finish_reason, last.n_input_tokens, last.n_output_tokens) == ("stop", 9, 2)
    assert (last.extra or {})["settings"] == {"top_p": 0.5}
    assert ((broken.extra or {})["error"], broken.completion) == ("model is overloaded", None)
    (look,) = next(one for name, one in found.items() if name.startswith("trip/")).steps
    assert (look.n_input_tokens, look.n_output_tokens, look.cost_usd) == (15, 4, 0.75)
    assert (look.extra or {})["usage"]["input_cached_tokens"] == 5
    assert (look.extra or {})["metadata"] == {"attempt": "1"}


def test_scores_are_of_the_session_the_last_call_of_a_trace_or_a_call(found: dict[str, Episode]) -> None:
    trip = found["trip"]
    assert trip.metrics == {"goal_reached": True}
    assert [step.metrics for step in trip.steps] == [{}, {"quality": 0.75}, {"helpful": False}, {}]
    said = {(one.tags["name"], one.value, one.inference_id) for one in trip.feedback if one.kind == "comment"}
    last = trip.steps[1].inference_id
    assert said == {("tone", "friendly", last), ("quality", "It found it.", last)}
    reader = [one for name, one in found.items() if name.startswith("trip/")][1]
    assert reader.steps[0].metrics == {"thorough": True}


def test_a_trace_in_no_session_is_an_episode_and_one_without_a_model_is_not(export: Path) -> None:
    read = READ.found(export)
    (lone,) = [one for one in read if one.missing == (NO_SESSION,)]
    assert isinstance(lone.reading, Reading)
    (step,) = lone.reading.episodes[0].steps
    assert answer(step).text == '{"city":"Paris"}'
    assert [one.aside for one in read if one.aside] == ["it has no model call"]


def changed(tables: langfuse.Tables, name: str, number: int, **fields: Any) -> langfuse.Tables:
    """The tables, in which a row is different."""
    rows = copy.deepcopy(tables[name])
    rows[number] |= fields
    return {**tables, name: rows}


def test_the_last_version_of_a_row_counts_in_any_order(tables: langfuse.Tables, tmp_path: Path) -> None:
    first = tables["observations"][0]
    late = {**first, "output": "late", "event_ts": "2026-11-26 00:00:00.000"}
    doubled = {**tables, "observations": [late, *tables["observations"], first]}
    place = langfuse.export(tmp_path, doubled, ".jsonl")
    completion = READ.episodes(place)["babyai-000"].steps[0].completion
    assert completion is not None
    assert completion.text == "late"


@pytest.mark.parametrize(
    ("fields", "kind", "where"),
    [
        ({"start_time": "soon"}, "not a time", "start_time"),
        ({"usage_details": 3}, "not an object", "usage_details"),
    ],
)
def test_a_damaged_row_is_the_problem_of_its_session(
    tables: langfuse.Tables, tmp_path: Path, fields: dict[str, Any], kind: str, where: str
) -> None:
    place = langfuse.export(tmp_path, changed(tables, "observations", 0, **fields), ".jsonl")
    (wrong,) = [one for one in READ.found(place) if one.problem is not None]
    assert wrong.place == "session babyai-000"
    assert wrong.problem is not None
    assert (wrong.problem.kind, wrong.problem.where) == (kind, where)


def test_a_damaged_line_and_a_damaged_file_are_named(tables: langfuse.Tables, tmp_path: Path) -> None:
    place = langfuse.export(tmp_path, tables, ".jsonl")
    folder = place / langfuse.PROJECT / "observations_v2"
    with next(folder.iterdir()).open("a") as file:
        file.write('{"id": 3}\n{\n')
    (folder / "z.parquet").write_bytes(b"PAR1")
    (folder / "z.jsonl.gz").write_bytes(b"no gzip")
    wrong = {str(one.problem and one.problem.kind) for one in READ.found(place) if one.problem is not None}
    assert wrong == {"a row without its id", "not JSON", "a damaged .parquet file", "a damaged .jsonl file"}


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(RequestError, match="not an export of Langfuse"):
        READ.found(tmp_path)


def test_a_text_that_the_client_cut_is_told(tables: langfuse.Tables, tmp_path: Path) -> None:
    cut = "Once upon <truncated due to size exceeding limit>"
    place = langfuse.export(tmp_path, changed(tables, "observations", 0, output=cut), ".jsonl")
    assert [one.missing for one in READ.found(place) if one.missing and NO_SESSION not in one.missing] == [
        (CUT_TEXT,)
    ]


def test_tools_are_read_from_their_column_where_the_input_has_none(
    tables: langfuse.Tables, tmp_path: Path
) -> None:
    tool = {"act": '{"description": "Do.", "parameters": "{\\"type\\": \\"object\\"}"}'}
    fields = {"input": "Go.", "tool_definitions": tool}
    place = langfuse.export(tmp_path, changed(tables, "observations", 0, **fields), ".jsonl")
    step = READ.episodes(place)["babyai-000"].steps[0]
    assert step.tools == ({"name": "act", "description": "Do.", "parameters": {"type": "object"}},)


def test_other_tables_are_refused_with_what_is_known(server: Any) -> None:
    langfuse.create(server.ask, "langfuse_core")
    server.ask("CREATE TABLE langfuse_core.events_core (span_id String) ENGINE = Memory")
    with pytest.raises(DataError, match="events_core and not events_full: Langfuse cuts the texts"):
        READ.found(server.url_for(READER, database="langfuse_core"))
    server.ask("CREATE TABLE langfuse_core.observations (id String) ENGINE = Memory")
    with pytest.raises(DataError, match="no table traces") as caught:
        READ.found(server.url_for(READER, database="langfuse_core"))
    assert "Langfuse 3" in (caught.value.hint or "")


def test_the_database_gives_the_last_versions_of_one_project_since_a_time(
    server: Any, tables: langfuse.Tables
) -> None:
    langfuse.create(server.ask, "langfuse_more", "v3.sql")
    for name, rows in tables.items():
        langfuse.insert(server.ask, "langfuse_more", name, rows)
    gone = {**tables["observations"][0], "is_deleted": 1, "event_ts": "2026-11-26 00:00:00.000"}
    langfuse.insert(server.ask, "langfuse_more", "observations", [gone])
    url = server.url_for(READER, database="langfuse_more")
    before = len(thirty.expected()[0].messages) // 2
    assert READ.episodes(url)["babyai-000"].n_steps == before - 1
    other = {**tables["observations"][1], "project_id": "project-2", "start_time": "2026-12-01 00:00:00.000"}
    langfuse.insert(server.ask, "langfuse_more", "observations", [other])
    with pytest.raises(RequestError, match="2 projects: project-1, project-2"):
        READ.found(url)
    with pytest.raises(RequestError, match="no project 'x'"):
        READ.found(f"{url}?project=x")
    late = max(row["start_time"] for row in tables["observations"] if row["name"] == "last")
    since = Wish(since=datetime.fromisoformat(late).replace(tzinfo=UTC))
    found = READ.episodes(f"{url}?project=project-1", since)
    assert not [name for name in found if name.startswith("babyai")]
    assert found["trip"].metrics == {"goal_reached": True}
    assert len(found["trip"].steps) == 4


@pytest.mark.full
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("version", [3, 4])
def test_the_api_is_asked_for_what_is_later_and_for_all_of_its_sessions(
    tables: langfuse.Tables, version: int
) -> None:
    late = max(row["start_time"] for row in tables["observations"])
    since = datetime.fromisoformat(late).replace(tzinfo=UTC) + timedelta(days=1)
    asked: list[str] = []
    with foreign.answering(langfuse.api(tables, version=version, asked=asked)) as url:
        found = READ.episodes(url, Wish(since=since))
    assert not [name for name in found if name.startswith(("babyai", "trip"))]
    since -= timedelta(seconds=5)
    with foreign.answering(langfuse.api(tables, version=version, asked=asked)) as url:
        assert len(READ.episodes(url, Wish(since=since))["trip"].steps) == 4
    assert any("sessionId=trip" in one for one in asked)
    assert any("fromTimestamp" in one for one in asked if "scores" in one)


@pytest.mark.usefixtures("keys")
def test_a_busy_server_is_asked_again(tables: langfuse.Tables) -> None:
    answer = langfuse.api(tables, version=4)
    is_busy = itertools.cycle([True, False])
    with foreign.answering(lambda *asked: (429, "{}") if next(is_busy) else answer(*asked)) as url:
        assert len(READ.episodes(url)) == thirty.N_EPISODES + N_OTHERS


def test_keys_come_from_the_environment_and_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGFUSE_SECRET_KEY", raising=False)
    with pytest.raises(RequestError, match="LANGFUSE_SECRET_KEY"):
        READ.found("https://cloud.langfuse.com")
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-very-secret")
    with (
        foreign.answering(lambda *_: (401, "no: sk-lf-very-secret")) as url,
        pytest.raises(ServiceError, match="HTTP 401") as caught,
    ):
        READ.found(url)
    assert "secret" not in str(caught.value)
    assert recognised("https://cloud.langfuse.com") == "langfuse"


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_what_the_sdk_sends_today_is_read_and_it_reads_the_stand_in(tmp_path: Path) -> None:
    """Installs Langfuse's SDK anew, plays the thirty episodes through it, and lets it read our answers."""
    sent, played = record.record(tmp_path)
    tables = langfuse.tables_of(sent)
    thirty.assert_same(READ.of_babyai(langfuse.export(tmp_path / "export", tables, ".parquet")), played)
    with foreign.answering(langfuse.api(tables, version=4)) as url:
        counts = record.read_by_sdk(tmp_path, url)
    assert counts == [len(tables["observations"]), len(tables["scores"])]
