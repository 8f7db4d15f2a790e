from pathlib import Path

import pytest

from trajkit._core.ids import uuid7
from trajkit.errors import StoreError
from trajkit.rollouts.records.deliver import _Lookup, refuse_other
from trajkit.schema import Episode, Transition, message
from trajkit.sources.tensorzero.export.prompts import Sent
from trajkit.store.writer import write_episodes


def episode(n_steps: int, **changes) -> Episode:
    steps = tuple(
        Transition(step_index=i, inference_id=uuid7(), observation="a wall\n\u2028é", **changes)
        for i in range(n_steps)
    )
    return Episode(episode_id=uuid7(), source="rollout", steps=steps)


def test_without_anybody_to_ask_episodes_stay_as_they_are():
    kept = [episode(3), episode(0), episode(1)]
    assert list(_Lookup(None).fill(iter(kept))) == kept


def test_prompts_are_asked_for_in_batches_and_the_missing_counted():
    batches = []

    def prompts(inference_ids):
        batches.append(len(inference_ids))
        return {one: Sent((message("user", one),)) for one in inference_ids if one != missing}

    kept = [episode(900) for _ in range(5)]
    missing = kept[4].steps[7].inference_id
    lookup = _Lookup(prompts)
    back = list(lookup.fill(iter(kept)))
    assert batches == [2700, 1800]
    assert lookup.n_missing == 1
    assert back[4].steps[7].messages is None
    assert back[4].steps[8].messages == (message("user", kept[4].steps[8].inference_id),)


def test_a_prompt_that_is_known_is_not_asked_for():
    kept = [episode(2, messages=(message("user", "known"),)), episode(1)]
    asked = []

    def prompts(inference_ids):
        asked.extend(inference_ids)
        return {one: Sent((message("user", "found"),)) for one in inference_ids}

    back = list(_Lookup(prompts).fill(iter(kept)))
    assert asked == [kept[1].steps[0].inference_id]
    assert [step.messages[0].text for one in back for step in one.steps] == ["known", "known", "found"]


def test_nothing_but_a_store_of_the_same_run_gives_way(tmp_path: Path):
    store = tmp_path / "store"
    assert refuse_other(store) is None
    manifest = write_episodes(store, [episode(1)], kind="rollout", source={"run": "mine"})
    assert refuse_other(store) == refuse_other(store, "mine") == manifest
    with pytest.raises(StoreError, match="exists already"):
        refuse_other(store, "another")
    for name, make in (
        ("folder", lambda path: path.mkdir()),
        ("file", lambda path: path.write_text("")),
        ("link", lambda path: path.symlink_to(tmp_path / "nowhere")),
        ("export", lambda path: write_episodes(path, [episode(1)], kind="export", source={"run": "mine"})),
    ):
        make(tmp_path / name)
        with pytest.raises(StoreError, match="exists already"):
            refuse_other(tmp_path / name, "mine")
