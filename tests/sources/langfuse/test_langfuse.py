"""Sessions of Langfuse, from its tables, its export and its API, of what its real SDK sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sources import foreign, thirty
from tests.sources.conftest import READER
from tests.sources.langfuse import record, server as langfuse
from trajkit.errors import DataError, RequestError, ServiceError
from trajkit.formats.document import Reading
from trajkit.schema import Episode, FileBlock, ThoughtBlock
from trajkit.sources.calls import NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.langfuse.connect import SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

N_OTHERS = 4
"""Episodes beside the thirty: a session with two sub-agents, and a lone trace."""


@pytest.fixture(scope="module")
def tables() -> langfuse.Tables:
    return langfuse.tables_of(record.recorded())


@pytest.fixture(scope="module")
def export(tables: langfuse.Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return langfuse.export(tmp_path_factory.mktemp("export"), tables, ".parquet")


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


def found_at(place: Path | str, wish: Wish = Wish()) -> list[Found]:  # noqa: B008 -- frozen
    return [one for one in SOURCE.read(str(place), wish) if isinstance(one, Found)]


def episodes_at(place: Path | str, wish: Wish = Wish()) -> dict[str, Episode]:  # noqa: B008 -- frozen
    readings = [one.reading for one in found_at(place, wish)]
    return {each.episode_id: each for one in readings if isinstance(one, Reading) for each in one.episodes}


def of_babyai(place: Path | str) -> list[Episode]:
    return [one for name, one in episodes_at(place).items() if name.startswith("babyai-")]


class TestLangfuse(SourceContract):
    source = SOURCE
    n_episodes = thirty.N_EPISODES + N_OTHERS

    @pytest.fixture(autouse=True)
    def _place(self, export: Path, tables: langfuse.Tables) -> None:
        type(self).place = str(export)
        type(self).n_steps = sum(row["type"] == "GENERATION" for row in tables["observations"])


def test_thirty_episodes_come_back_from_the_tables_of_version_3(database: str) -> None:
    thirty.assert_same(of_babyai(database), thirty.expected())


def test_thirty_episodes_come_back_from_the_tables_of_version_4(server: Any, tables: langfuse.Tables) -> None:
    langfuse.create(server.ask, "langfuse4", "v3.sql", "v4.sql")
    langfuse.insert(server.ask, "langfuse4", "events_full", langfuse.events_of(tables))
    langfuse.insert(server.ask, "langfuse4", "scores", tables["scores"])
    url = server.url_for(READER, database="langfuse4")
    thirty.assert_same(of_babyai(url), thirty.expected())
    assert plain(episodes_at(url)) == plain(episodes_at(server.url_for(READER, database="langfuse4")))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ".csv.gz"])
@pytest.mark.parametrize("is_enriched", [True, False])
def test_thirty_episodes_come_back_from_an_export(
    tables: langfuse.Tables, tmp_path: Path, suffix: str, is_enriched: bool
) -> None:
    place = langfuse.export(tmp_path, tables, suffix, is_enriched=is_enriched)
    assert recognised(str(place)) == "langfuse"
    assert not [one for one in SOURCE.read(str(place), Wish()) if isinstance(one, Unread)]
    thirty.assert_same(of_babyai(place), thirty.expected())


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("version", [3, 4])
def test_thirty_episodes_come_back_from_the_api(tables: langfuse.Tables, version: int) -> None:
    with foreign.answering(langfuse.api(tables, version=version)) as url:
        thirty.assert_same(of_babyai(url), thirty.expected())


@pytest.mark.usefixtures("keys")
def test_all_ways_say_the_same(database: str, tables: langfuse.Tables, export: Path) -> None:
    ours = plain(episodes_at(database))
    assert plain(episodes_at(export)) == ours
    for version in (3, 4):
        with foreign.answering(langfuse.api(tables, version=version)) as url:
            assert plain(episodes_at(url)) == ours


def plain(episodes: dict[str, Episode]) -> dict[str, Any]:
    """Episodes without metadata, which not every way tells, and by session: a lone trace is named later."""
    found = {}
    for name, one in episodes.items():
        value = one.model_dump(mode="json")
        value["origin"].pop("metadata", None)
        for step in value["steps"]:
            step["extra"].pop("metadata", None)
        found[name] = value
    return found


def test_a_session_has_its_traces_its_sub_agents_and_its_user(export: Path) -> None:
    found = episodes_at(export)
    trip, searcher, reader = (one for name, one in found.items() if name.startswith("trip"))
    assert [step.agent_name for step in trip.steps] == ["lead", "lead", None, None]
    assert trip.tags == {"user_id": "ada", "version": "v7", "search": "true"}
    assert [searcher.steps[0].agent_name, reader.steps[0].agent_name] == ["searcher", "reader"]
    assert (searcher.origin or {})["parent_episode_id"] == "trip"
    assert (reader.origin or {})["parent_episode_id"] == searcher.episode_id
    assert (trip.origin or {})["trace_name"] == "lead"
    assert [type(one) for one in (searcher.steps[0].messages or ())[0].content][1] is FileBlock
    assert searcher.steps[0].completion is not None
    assert isinstance(searcher.steps[0].completion.content[0], ThoughtBlock)


def test_a_call_has_its_settings_tokens_cost_prompt_and_failure(export: Path) -> None:
    found = episodes_at(export)
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


def test_scores_are_of_the_session_the_last_call_of_a_trace_or_a_call(export: Path) -> None:
    found = episodes_at(export)
    trip = found["trip"]
    assert trip.metrics == {"goal_reached": True}
    assert [step.metrics for step in trip.steps] == [{}, {"quality": 0.75}, {"helpful": False}, {}]
    said = {(one.tags["name"], one.value, one.inference_id) for one in trip.feedback if one.kind == "comment"}
    last = trip.steps[1].inference_id
    assert said == {("tone", "friendly", last), ("quality", "It found it.", last)}
    reader = [one for name, one in found.items() if name.startswith("trip/")][1]
    assert reader.steps[0].metrics == {"thorough": True}


def test_a_trace_in_no_session_is_an_episode_and_one_without_a_model_is_not(export: Path) -> None:
    found = found_at(export)
    (lone,) = [one for one in found if one.missing == (NO_SESSION,)]
    assert isinstance(lone.reading, Reading)
    (step,) = lone.reading.episodes[0].steps
    assert step.completion is not None
    assert step.completion.text == '{"city":"Paris"}'
    assert [one.aside for one in found if one.aside] == ["no call of a model in it"]
