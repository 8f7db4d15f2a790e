"""The source `verifiers`: results of its evaluations, old rows and new graphs with tokens."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sources import thirty
from tests.sources.reading import Reader
from tests.sources.verifiers import record
from trajkit.schema import Episode, FileBlock, ThoughtBlock
from trajkit.sources.calls import NO_PROMPT
from trajkit.sources.catalog import recognised
from trajkit.sources.verifiers.connect import SOURCE
from trajkit.testing.source import SourceContract

READ = Reader(SOURCE)
TRACES = record.DATA / "traces.jsonl"


class TestVerifiers(SourceContract):
    source = SOURCE
    place = str(TRACES)
    n_episodes = 2
    n_steps = 4
    not_in_fixture = ("tool calls", "tool results", "tools offered", "cost")


def episodes_of(path: Path) -> list[Episode]:
    return list(READ.sound(path).values())


def unpacked(folder: Path, out: Path, kind: str) -> Path:
    goal = folder / kind
    goal.mkdir()
    shutil.copy(out / "metadata.json", goal)
    name = "results.jsonl" if kind == "rows" else "traces.jsonl"
    (goal / name).write_bytes(gzip.decompress((out / f"{kind}.jsonl.gz").read_bytes()))
    return goal


def _check(out: Path, folder: Path, played: Sequence[thirty.Played]) -> None:
    thirty.assert_same(episodes_of(unpacked(folder, out, "graph")), played)
    named = [
        # a row has no id of its own: what it says of itself is in its info
        one.model_copy(
            update={"origin": {**(one.origin or {}), "session_id": (one.origin or {})["info"]["name"]}}
        )
        for one in episodes_of(unpacked(folder, out, "rows"))
    ]
    thirty.assert_same(named, played)
    first = named[0]
    assert first.metrics["reward"] == played[0].episode_return
    assert (first.env_id, first.task) == ("babyai", "0")
    assert {step.n_input_tokens for step in first.steps} == {100}
    assert all(step.latency_s is not None for step in first.steps)


def test_thirty_episodes_of_both_versions_come_back_the_same(tmp_path: Path) -> None:
    _check(record.DATA, tmp_path, thirty.expected())


@pytest.mark.full
def test_thirty_episodes_recorded_anew_come_back_the_same(tmp_path: Path) -> None:
    again = record.record(tmp_path / "work", tmp_path / "out")
    _check(tmp_path / "out", tmp_path, again)


def test_rows_without_their_trajectory_are_the_same_conversation(tmp_path: Path) -> None:
    path = unpacked(tmp_path, record.DATA, "rows") / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    whole = episodes_of(path)
    for row in rows:
        del row["trajectory"]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for one, plain in zip(whole, episodes_of(path), strict=True):
        assert list(plain.prompts()) == list(one.prompts())
        assert [step.completion for step in plain.steps] == [step.completion for step in one.steps]
        assert plain.metrics == one.metrics
        assert plain.started_at == one.started_at


def test_the_graph_gives_token_ids_and_log_probabilities_of_each_answer() -> None:
    solver, _ = episodes_of(TRACES)
    tokens = [(one.prompt_token_ids, one.completion_token_ids, one.logprobs) for one in solver.steps]
    assert tokens == [
        ((1, 2, 3, 4), (5, 6), (-0.5, -0.5)),
        ((1, 2, 3, 4, 5, 6, 7, 8), (9,), (-0.5,)),
    ]
    assert solver.steps[1].n_prompt_kept == 3
    assert solver.steps[0].completion is not None
    thoughts = [one.text for one in solver.steps[0].completion.content if isinstance(one, ThoughtBlock)]
    assert thoughts == ["One and one."]


def test_rewards_are_weighted_and_those_that_are_not_known_are_left_out() -> None:
    solver, judge = episodes_of(TRACES)
    assert solver.metrics == {"reward": 0.5, "right": 1.0, "n_words": 3.0}
    assert judge.metrics == {}
    assert judge.steps[-1].metrics == {"reward": 0.0, "agrees": 0.0}


def test_a_further_agent_is_a_linked_episode_and_its_failed_call_is_a_step() -> None:
    (found,) = READ.found(TRACES)
    assert NO_PROMPT in found.missing
    _, judge = episodes_of(TRACES)
    assert judge.episode_id == "pair/pair-judge"
    assert (judge.origin or {})["parent_episode_id"] == "pair"
    errors = [(step.extra or {}).get("error") for step in judge.steps]
    assert sorted(filter(None, errors)) == ["ProviderError: too many requests"]
    prompts = [message for step in judge.steps for message in step.messages or ()]
    assert any(isinstance(one, FileBlock) for message in prompts for one in message.content)


def test_texts_as_prompt_and_completion_are_a_conversation(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    row = {"example_id": 3, "task": "gsm8k", "prompt": "1 + 1", "completion": "2", "reward": 1, "speed": 0.5}
    path.write_text(json.dumps({**row, "metrics": {"speed": 0.5}}), encoding="utf-8")
    (episode,) = episodes_of(path)
    assert (episode.task, episode.metrics) == ("gsm8k/3", {"reward": 1.0, "speed": 0.5})
    assert [message.text for message in episode.prompt(0) or ()] == ["1 + 1"]
    assert episode.started_at is None


def _graph(**fields: Any) -> str:
    value = json.loads(TRACES.read_text(encoding="utf-8"))
    value["traces"][0] |= fields
    return json.dumps(value)


def test_a_bad_line_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    row = {"example_id": 1, "prompt": "a", "completion": "b", "reward": 1.0}
    loop = [{"parent": 0, "message": {"role": "user", "content": "x"}, "sampled": True}]
    lines = [
        json.dumps(row),
        json.dumps({**row, "reward": "high"}),
        json.dumps({"results": []}),
        json.dumps({**row, "completion": [{"role": "assistant", "tool_calls": ["{"]}]}),
        _graph(version=2),
        _graph(nodes=loop),
        '{"prompt"',
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(lines), encoding="utf-8")
    wrong = [None if one.problem is None else one.problem.kind for one in READ.found(tmp_path)]
    assert wrong == [
        None,
        "a metric that is not a number",
        "not a result of verifiers",
        "a call that is not JSON",
        "an unknown version; known: 1",
        "a parent that is not an earlier node",
        "cut off: the file ends in the middle of it",
    ]


def test_it_is_recognised_by_its_first_line(tmp_path: Path) -> None:
    assert recognised(str(record.DATA)) == "verifiers"
    assert recognised(str(unpacked(tmp_path, record.DATA, "rows"))) == "verifiers"
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    assert recognised(str(chat)) is None
