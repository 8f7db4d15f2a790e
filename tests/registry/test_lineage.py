from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajkit.curation.merge import merge
from trajkit.curation.rows.file import convert
from trajkit.curation.selection.select import select
from trajkit.errors import DataError
from trajkit.formats.trl import WEIGHTED
from trajkit.registry.ledger import Learned, Ledger, Registration, TunedModel, Undone
from trajkit.registry.lineage import Lineage, Side, Unknown, Use, uses_of
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import Store, open_store
from trajkit.store.writer import write_episodes

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def episode(name: str, *weights: float) -> Episode:
    steps = tuple(
        Transition(
            step_index=number,
            messages=(message("user", f"{name} {number}"),),
            completion=message("assistant", "go"),
            loss_weight=weight,
            mask_reason=None if weight else "masked",
        )
        for number, weight in enumerate(weights)
    )
    return Episode(
        episode_id=name,
        source="test",
        env_id="walk",
        task="go",
        seed=0,
        total_reward=len(weights),
        steps=steps,
    )


def store(path: Path, *episodes: Episode) -> Store:
    write_episodes(path, list(episodes), kind="test")
    return open_store(path)


def learned(found: Store, rows: Path | None = None) -> Learned:
    counts = found.manifest.counts
    return Learned(
        store=found.path,
        digest=found.manifest.digest,
        n_episodes=counts.n_episodes,
        n_steps=counts.n_steps,
        n_learned=counts.n_steps,
        rows=rows,
        history=found.manifest.lineage,
    )


def model(name: str, train: Learned | None = None, **fields: object) -> TunedModel:
    return TunedModel(name=name, train=train, **fields)


def registration(of: TunedModel, variant: str = "tuned") -> Registration:
    return Registration(
        registration_id=f"{of.name} {variant}",
        model=of,
        function="act",
        variant=variant,
        template_variant="base",
        config="/config/tensorzero.toml",
        registered_at=NOW,
        trajkit_version="0",
    )


@pytest.fixture
def all_of_it(tmp_path: Path) -> Store:
    return store(tmp_path / "all", episode("a", 1, 0, 1), episode("b", 0, 0), episode("c", 0.5))


def test_what_was_learned_is_read_from_the_rows_and_from_the_store(all_of_it: Store, tmp_path: Path) -> None:
    made = convert(open_dataset(all_of_it.path), tmp_path / "train.jsonl", to=WEIGHTED)
    wanted = [
        Use(episode_id="a", n_steps=3, n_learned=2),
        Use(episode_id="b", n_steps=2, n_learned=0),
        Use(episode_id="c", n_steps=1, n_learned=1),
    ]
    assert uses_of(learned(all_of_it)) == wanted
    of_rows = learned(all_of_it, made.provenance)
    shutil.rmtree(all_of_it.path)
    assert uses_of(of_rows) == wanted
    assert uses_of(of_rows, episode_id="c") == wanted[2:]
    assert uses_of(of_rows, episode_id="x' OR 1=1 --") == []


def test_without_rows_and_store_it_is_not_known(all_of_it: Store, tmp_path: Path) -> None:
    known = learned(all_of_it, tmp_path / "gone.parquet")
    shutil.rmtree(all_of_it.path)
    gone = uses_of(known)
    assert isinstance(gone, Unknown)
    assert "and the rows are gone" in gone.reason
    store(all_of_it.path, episode("z", 1))
    other = uses_of(known)
    assert isinstance(other, Unknown)
    assert "has other content now" in other.reason


def test_an_episode_knows_the_models_that_saw_it(all_of_it: Store, tmp_path: Path) -> None:
    held = store(tmp_path / "held", episode("v", 1))
    tuned = model("ft:one", learned(all_of_it), validation=learned(held), job_id="job-1")
    elsewhere = model("ft:elsewhere")
    known = Lineage([tuned], [registration(tuned), registration(elsewhere, "other")])
    (sight,) = known.of_episode("a").sights
    assert (sight.model, sight.side, sight.use.n_learned) == (tuned, Side.TRAIN, 2)
    assert [each.variant for each in sight.variants] == ["tuned"]
    (measured,) = known.of_episode("v").sights
    assert measured.side == Side.VALIDATION
    assert known.of_episode("nobody").sights == ()
    shutil.rmtree(held.path)
    (doubt,) = known.of_episode("v").doubts
    assert (doubt.model, doubt.side) == (tuned, Side.VALIDATION)


@pytest.mark.parametrize("name", ["ft:one", "ft:checkpoint", "job-1", "tuned", "act/tuned"])
def test_a_model_is_found_by_all_its_names(all_of_it: Store, name: str) -> None:
    tuned = model("ft:one", learned(all_of_it), job_id="job-1", names=("ft:checkpoint",))
    known = Lineage([tuned], [registration(tuned)])
    (found,) = known.find_models(name)
    whole = known.of_model(found)
    assert isinstance(whole.train, tuple)
    assert [use.episode_id for use in whole.train] == ["a", "b", "c"]
    assert [each.variant for each in whole.variants] == ["tuned"]
    assert known.find_models("tune") == []


def test_a_model_knows_the_tuned_models_that_it_started_from(tmp_path: Path) -> None:
    first = model("first", names=(str(tmp_path / "runs/first/merged"),), base="hub/base")
    second = model("second", base=str(tmp_path / "runs/first/merged"))
    third = model("third", base="second")
    known = Lineage([third, second, first], [])
    assert known.of_model(third).ancestors == (second, first)
    itself = model("round", base="round")
    assert Lineage([itself], []).of_model(itself).ancestors == ()


def test_a_store_knows_the_models_of_all_that_was_made_of_it(all_of_it: Store, tmp_path: Path) -> None:
    more = store(tmp_path / "more", episode("d", 1))
    merge([all_of_it.path, more.path], tmp_path / "merged")
    select(tmp_path / "merged", tmp_path / "chosen", where="total_reward > 1")
    chosen = open_store(tmp_path / "chosen")
    tuned = model("tuned", learned(chosen))
    known = Lineage([tuned], [registration(tuned, "v")])
    for each in (all_of_it, more, open_store(tmp_path / "merged"), chosen):
        found = known.of_store(each.manifest.digest)
        assert found.models == (tuned,)
        assert [each.variant for each in found.variants] == ["v"]
    assert known.of_store("0" * 64).models == ()
    assert [entry.verb for entry in known.of_store(chosen.manifest.digest).history] == ["merge", "select"]
    merged = open_store(tmp_path / "merged").manifest.digest
    assert [entry.verb for entry in known.of_store(merged).history] == ["merge"]
    assert known.find_digests(merged[:12]) == [merged]
    assert known.find_digests(merged[:7]) == []


def test_the_ledger_keeps_what_was_done_and_what_was_taken_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "runs")
    assert ledger.standing() == []
    one, two = registration(model("ft:one")), registration(model("ft:two"), "other")
    ledger.add(one)
    ledger.add(two)
    assert ledger.standing() == [two, one]
    ledger.add(Undone(registration_id=two.registration_id, undone_at=NOW))
    assert Ledger(tmp_path / "runs").standing() == [one]
    assert ledger.registrations() == [two, one]


def test_a_damaged_line_of_the_ledger_is_named(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add(registration(model("ft:one")))
    with ledger.path.open("a") as file:
        file.write('{"kind": "und\n')
    with pytest.raises(DataError, match=r"line 2 of .*ledger\.jsonl is damaged"):
        ledger.standing()
