"""What was played through the real gateway comes out of the real ClickHouse as it was played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.viewer.api.conftest import Client
from trajkit.rollouts.records.record import to_episode, with_prompts
from trajkit.schema import Episode, Purpose, single_precision
from trajkit.sources.request import ExportRequest, MetricCondition
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export
from trajkit.sources.tensorzero.export.prompts import rendered_prompts
from trajkit.stack.state import local_stack
from trajkit.store.dataset import open_dataset
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


@pytest.fixture(scope="module")
def url(stack_folder: Path) -> str:
    stack = local_stack(stack_folder)
    assert stack is not None
    return stack.clickhouse_url.get_secret_value()


@pytest.fixture(scope="module")
def export_folder(everything: Any, url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of everything of the run."""
    goal = tmp_path_factory.mktemp("round-trip") / "store"
    database = open_database(url)
    request = ExportRequest(
        functions=("act",),
        tags={"trajkit.run": everything.run},
        include_eval=True,
        metrics=(MetricCondition(name="progression"),),
    )
    export(database, request, goal)
    database.close()
    return goal


@pytest.fixture(scope="module")
def exported(export_folder: Path) -> dict[str, Episode]:
    """Everything of the run, by episode id."""
    return {episode.episode_id: episode for episode in open_dataset(export_folder)}


@pytest.mark.timeout(900)
def test_every_episode_comes_back_with_the_same_steps_in_the_same_order(
    everything: Any, exported: dict[str, Episode]
) -> None:
    assert set(exported) == {one.episode_id for one in everything.played}
    for one in everything.played:
        steps = exported[one.episode_id].steps
        answers = [step.choice.answer for step in one.steps]
        assert [step.inference_id for step in steps] == [answer.inference_id for answer in answers]
        assert [step.step_index for step in steps] == list(range(len(one.steps)))
        assert [step.observation for step in steps] == [step.observation for step in one.steps]


def test_answers_actions_and_their_validity_come_back(everything: Any, exported: dict[str, Episode]) -> None:
    n_invalid = 0
    for one in everything.played:
        for ours, theirs in zip(one.steps, exported[one.episode_id].steps, strict=True):
            assert theirs.completion is not None
            assert theirs.completion.text == ours.choice.answer.raw
            assert theirs.action_executed == ours.result.action_executed
            assert theirs.action_valid == ours.result.action_valid
            assert theirs.n_input_tokens == ours.choice.answer.n_input_tokens
            assert theirs.n_output_tokens == ours.choice.answer.n_output_tokens
            n_invalid += not ours.result.action_valid
    assert n_invalid > 0


def test_returns_tags_and_purpose_come_back(everything: Any, exported: dict[str, Episode]) -> None:
    for one in everything.played:
        episode = exported[one.episode_id]
        assert episode.metrics == {name: single_precision(value) for name, value in one.metrics.items()}
        assert (episode.env_id, episode.task, episode.seed) == ("babyai", one.job.task, one.job.seed)
        ours = {name: value for name, value in episode.tags.items() if not name.startswith("tensorzero::")}
        assert ours == one.tags
        assert episode.purpose == Purpose.EVAL
        assert sorted(item.feedback_id for item in episode.feedback) == sorted(
            item.feedback_id for item in one.feedback
        )


def test_the_prompt_of_the_export_is_the_one_that_a_rollout_reads_back(
    everything: Any, exported: dict[str, Episode], url: str
) -> None:
    one = max(everything.played, key=lambda played: len(played.steps))
    prompts = rendered_prompts(url, [step.choice.answer.inference_id for step in one.steps])
    recorded = with_prompts(to_episode(one), prompts)
    assert list(recorded.prompts()) == list(exported[one.episode_id].prompts())
    assert recorded.total_reward == pytest.approx(
        exported[one.episode_id].metrics["episode_return"], rel=1e-6
    )
    first = recorded.prompt(0)
    assert first is not None
    assert [message.role for message in first] == ["system", "user"]
    assert one.mission in first[0].text


def test_the_page_shows_what_the_database_held(export_folder: Path, exported: dict[str, Episode]) -> None:
    with Shelf([export_folder]) as shelf, PageServer(shelf) as server:
        client = Client(server)
        listed = client.ask("episodes", limit=200)["rows"]
        assert {row["id"] for row in listed} == set(exported)
        for episode_id, episode in exported.items():
            steps = client.ask("episode", store=0, id=episode_id)["steps"]
            assert [step["action"] for step in steps] == [step.action for step in episode.steps[: len(steps)]]
            said = [step["completion"]["blocks"][0]["text"] for step in steps]
            assert said == [step.completion.text for step in episode.steps[: len(steps)] if step.completion]
            prompt = client.ask("messages", store=0, id=episode_id, step=0)["messages"]
            assert [message["role"] for message in prompt] == ["system", "user"]
