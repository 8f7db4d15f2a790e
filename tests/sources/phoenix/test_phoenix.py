"""Sessions of Phoenix: a real database and the answers of a real server, as `record.py` made them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.sources import foreign, thirty
from tests.sources.phoenix import record
from tests.sources.reading import Reader
from trajkit.errors import DataError, RequestError, ServiceError
from trajkit.schema import Episode, FileBlock
from trajkit.sources.calls import NO_SESSION
from trajkit.sources.catalog import recognised
from trajkit.sources.files.importing import import_files
from trajkit.sources.phoenix.connect import DOCUMENT_SCORES, SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

N_OTHERS = 4
"""Episodes of the project `shapes`: a session with two sub-agents, and a lone trace."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return foreign.unpacked(record.FIXTURE, tmp_path_factory.mktemp("phoenix") / "phoenix.db")


@pytest.fixture
def changed(database: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the database in which something is different."""

    return partial(foreign.changed, database, tmp_path / "changed.db")


@pytest.fixture
def server() -> Iterator[str]:
    with foreign.replayed(record.API) as url:
        yield url


@pytest.fixture(scope="module")
def found(database: Path) -> dict[str, Episode]:
    return READ.episodes(database)


class TestPhoenix(SourceContract):
    source = SOURCE
    n_episodes = 3 + N_OTHERS
    n_steps = 16
    not_in_fixture = ("thoughts",)

    @pytest.fixture(autouse=True)
    def _place(self, changed: Callable[..., Path]) -> None:
        most = "session_id LIKE 'babyai-%' AND session_id > 'babyai-002'"
        sessions = f"SELECT id FROM project_sessions WHERE {most}"
        type(self).place = str(changed(f"DELETE FROM traces WHERE project_session_rowid IN ({sessions})"))


def test_thirty_episodes_come_back_and_the_server_and_the_database_say_the_same(
    database: Path, found: dict[str, Episode], server: str
) -> None:
    """But for costs: the API does not tell what a call cost, nor the scores of documents."""
    thirty.assert_same(READ.of_babyai(database), thirty.expected())
    theirs = READ.episodes(server)
    assert found.keys() == theirs.keys()
    for name, one in found.items():
        steps = tuple(step.model_copy(update={"cost_usd": None}) for step in one.steps)
        assert one.model_copy(update={"steps": steps}) == theirs[name], name


def test_one_project_is_chosen_by_name(database: Path, server: str) -> None:
    for place in (f"sqlite:///{database}?project=shapes", f"{server}?project=shapes"):
        assert len(READ.episodes(place)) == N_OTHERS
    for place in (f"sqlite:///{database}?project=weather", f"{server}?project=weather"):
        with pytest.raises(RequestError, match="no project 'weather'") as caught:
            READ.found(place)
        assert caught.value.hint == "there are: babyai, default, shapes"
    with pytest.raises(RequestError, match="unknown option run"):
        READ.found(f"sqlite:///{database}?run=1")


def test_a_session_has_its_turns_its_sub_agents_and_its_user(found: dict[str, Episode]) -> None:
    trip, searcher, reader = (one for name, one in found.items() if name.startswith("trip"))
    assert [step.agent_name for step in trip.steps] == ["lead", "lead", None]
    assert [step.n_prompt_kept for step in trip.steps] == [0, 2, 0]
    assert trip.tags == {"user_id": "ada", "beta": "true"}
    assert (trip.origin or {})["project"] == "shapes"
    assert (trip.origin or {})["metadata.team"] == "search"
    assert [searcher.steps[0].agent_name, reader.steps[0].agent_name] == ["searcher", "reader"]
    assert (searcher.origin or {})["parent_episode_id"] == "trip"
    assert (reader.origin or {})["parent_episode_id"] == searcher.episode_id
    (image,) = [one for one in (searcher.steps[0].messages or ())[0].content if isinstance(one, FileBlock)]
    assert image.mime_type == "image/png"


def test_a_call_has_its_settings_tokens_cost_and_failure(found: dict[str, Episode]) -> None:
    first, second, refused = found["trip"].steps
    assert (first.extra or {})["settings"] == {"temperature": 0.5, "max_tokens": 64, "stop": ["END"]}
    assert (first.n_input_tokens, first.n_output_tokens, first.finish_reason) == (100, 7, "tool_calls")
    assert first.model_name == "gpt-4o-mini"
    assert first.cost_usd == pytest.approx((100 * 0.15 + 7 * 0.6) / 1e6)
    assert second.cost_usd is None
    assert (refused.extra or {})["error"] == "BadRequestError: Error code: 400 - no such model"
    assert refused.completion is None


def test_annotations_are_metrics_and_comments(found: dict[str, Episode]) -> None:
    """Of a name the later counts; a label beside a number is a tag; a label alone is a comment."""
    trip = found["trip"]
    assert trip.metrics == {"correct": 1.0}
    assert trip.steps[0].metrics == {"quality": 0.75}
    by_name = {(one.metric_name, str(one.tags.get("name"))): one for one in trip.feedback}
    assert by_name["correct", "None"].tags["label"] == "correct"
    assert by_name["quality", "None"].tags["judge"] == "j1"
    said = {(name, one.value) for (kind, name), one in by_name.items() if kind == "comment"}
    assert said == {("tone", "friendly"), ("note", "A note."), ("correct", "It rains.")}


def test_a_lone_trace_a_session_without_a_call_and_scores_of_documents_are_counted(
    changed: Callable[..., Path], tmp_path: Path
) -> None:
    place = changed(
        "UPDATE spans SET attributes = json_set(attributes, '$.openinference.span.kind', 'CHAIN')"
        " WHERE trace_rowid IN (SELECT t.id FROM traces t JOIN project_sessions s"
        " ON s.id = t.project_session_rowid WHERE s.session_id = 'babyai-004')"
    )
    report, _ = import_files(place, tmp_path / "store", Wish())
    assert report.left == {"it has no model call": 1}
    assert report.missing[NO_SESSION] == 1
    assert report.missing[DOCUMENT_SCORES] == 1


def test_a_database_without_the_newer_tables_is_read(changed: Callable[..., Path]) -> None:
    names = ("project_session_annotations", "span_costs", "document_annotations")
    place = changed(*(f"DROP TABLE {name}" for name in names))
    found = READ.of_babyai(place)
    thirty.assert_same(found, thirty.expected(), has_metric=False)
    assert {step.cost_usd for one in found for step in one.steps} == {None}


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE spans SET attributes = '{' WHERE name = 'lead'", "not JSON"),
        ("UPDATE spans SET attributes = '[]' WHERE name = 'lead'", "not an object"),
        ("UPDATE spans SET start_time = 'soon' WHERE name = 'lead'", "not a time"),
        ("UPDATE span_annotations SET metadata = '' WHERE name = 'quality'", "not JSON"),
    ],
)
def test_a_damaged_row_is_the_problem_of_its_session(
    changed: Callable[..., Path], statement: str, kind: str
) -> None:
    found = READ.found(changed(statement))
    (wrong,) = [one for one in found if one.problem is not None]
    assert (wrong.place, wrong.problem and wrong.problem.kind) == ("shapes/trip", kind)
    assert sum(one.reading is not None for one in found) == thirty.N_EPISODES + 1


def test_an_old_schema_is_refused_with_what_is_known(changed: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no table project_sessions"):
        READ.found(changed("DROP TABLE project_sessions"))
    with pytest.raises(DataError, match="the table spans has no column events"):
        READ.found(changed("ALTER TABLE spans DROP COLUMN events"))


def test_a_database_is_recognised_by_its_tables(database: Path) -> None:
    assert recognised(str(database)) == "phoenix"
    assert recognised(f"sqlite:///{database}") == "phoenix"


def test_a_server_is_asked_for_the_spans_of_later_sessions_alone() -> None:
    asked: list[str] = []

    def answer(_: str, path: str, __: str) -> tuple[int, str]:
        asked.append(path)
        data: list[object] = []
        if path.startswith("/v1/projects?"):
            data = [{"id": "P1", "name": "a"}]
        elif "/sessions?" in path:
            is_first = "cursor" not in path
            number = 1 if is_first else 2
            data = [{"session_id": f"s{number}", "traces": [{"trace_id": f"t{number}"}]}]
            return 200, json.dumps({"data": data, "next_cursor": "c" if is_first else None})
        elif "/traces?" in path:
            ends = ("2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z")
            data = [{"trace_id": f"t{number}", "end_time": end} for number, end in enumerate(ends, 1)]
        return 200, json.dumps({"data": data, "next_cursor": None})

    with foreign.answering(answer) as url:
        found = READ.found(url, Wish(since=datetime(2026, 11, 2, tzinfo=UTC)))
    assert [(one.place, one.aside) for one in found] == [
        ("s1", "before --since"),
        ("a/s2", "it has no model call"),
    ]
    assert [path for path in asked if "/spans" in path] == ["/v1/projects/P1/spans?trace_id=t2&limit=1000"]


def test_a_key_comes_from_the_environment_and_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_API_KEY", "very-secret-token-1")
    with foreign.answering(lambda *_: (401, "no: very-secret-token-1")) as url:
        with pytest.raises(ServiceError, match=r"refused .* \(HTTP 401\)") as caught:
            READ.found(url)
        assert "PHOENIX_API_KEY" in (caught.value.hint or "")
    assert "secret" not in str(caught.value)
    with (
        foreign.answering(lambda *_: (200, "<html>")) as url,
        pytest.raises(ServiceError, match="JSON object"),
    ):
        READ.found(url)
    with (
        foreign.answering(lambda *_: (200, "{}")) as url,
        pytest.raises(ServiceError, match="without a list"),
    ):
        READ.found(url)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_real_server_of_today_is_read_as_its_record_was(tmp_path: Path) -> None:
    """Installs Phoenix anew and plays the thirty episodes through its client."""
    place, played = record.record(tmp_path)
    thirty.assert_same(READ.of_babyai(place), played)
    assert len(READ.episodes(place)) == thirty.N_EPISODES + N_OTHERS
