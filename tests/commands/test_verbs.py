"""The commands as functions: the same results, values instead of printed text, nothing paid without a yes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import trajkit
from tests.cli.walks import write_walks
from tests.pages import blocks
from tests.warm import Forked
from trajkit._core.settings import remembered
from trajkit.cli.main import run
from trajkit.errors import NothingMatched, RequestError, ServiceError

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
SAMPLE = "sample:babyai"
GOOD = "purpose = 'train' and episode_return >= 0.7"


def digest(path: object) -> str:
    return trajkit.open_dataset(str(path)).store.manifest.digest


def test_a_verb_makes_what_its_command_makes():
    assert run(["select", SAMPLE, "--where", "outcome = 'success'", "--top", "1", "-o", "typed"]) == 0
    made = trajkit.select(SAMPLE, where="outcome = 'success'", top=1, output="called")
    assert made.manifest.digest == digest("typed")
    assert made.dataset.n_episodes == made.entry.n_episodes_out
    assert remembered("last_store") == {"path": str(Path("called").absolute())}


@pytest.mark.full
def test_verbs_chain_by_what_they_made_and_by_the_last_store():
    good = trajkit.select(SAMPLE, where=GOOD, output="good")
    masked = trajkit.mask(good, reason=["invalid", "loop"], output="masked")
    assert masked.report.n_learned_before == good.dataset.n_steps
    weighted = trajkit.weight(scheme="return", output="weighted")
    assert weighted.entry.parent_digest == masked.manifest.digest
    sides = trajkit.split(weighted, ratio={"train": 0.8, "val": 0.2}, seed=1, output="sides")
    assert list(sides.made) == ["train", "val"]
    whole = trajkit.merge([sides.made["train"], sides.made["val"]], output="whole")
    assert whole.manifest.digest == weighted.manifest.digest
    assert not trajkit.leak(sides.made["train"], sides.made["val"]).leaks
    found = trajkit.redact(whole, gate=False, output="public")
    assert found.made.path == Path("public")
    assert found.gate is None


def test_a_dry_run_says_what_would_be_and_writes_nothing():
    made = trajkit.dedupe(SAMPLE, exact=True, episodes=True, dry_run=True)
    assert made.entry.n_episodes_in == 55
    assert made.path is None
    assert not Path("stores").exists()
    with pytest.raises(RequestError, match="a dry run makes no store"):
        made.dataset  # noqa: B018 - it is a property
    with pytest.raises(RequestError, match="is not a store"):
        trajkit.mask(made, dry_run=True)


def test_a_view_is_no_store_and_the_error_says_how_it_becomes_one():
    view = trajkit.open_dataset(SAMPLE).where("outcome = 'success'")
    with pytest.raises(RequestError, match="is a view") as error:
        trajkit.mask(view, dry_run=True)
    assert ".save(" in str(error.value.hint)
    view.save(Path("saved"))
    assert trajkit.mask("saved", dry_run=True).entry.n_episodes_in == view.n_episodes


def test_looking_gives_values():
    assert trajkit.info(SAMPLE).counts.n_episodes == 55
    assert trajkit.query(SAMPLE, "select count(*) as n from episodes") == [{"n": 55}]
    assert len(trajkit.query(SAMPLE, "select episode_id from steps", limit=3)) == 3
    (row,) = trajkit.query(SAMPLE, "select messages from steps", limit=1)
    assert row["messages"][0]["role"] == "system"
    assert trajkit.show(SAMPLE, 0) == trajkit.open_dataset(SAMPLE).episode("0")
    assert trajkit.stats(SAMPLE, html="stats.html").n_episodes == 55
    assert Path("stats.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(RequestError, match="no STORE given"):
        trajkit.info()


def test_files_go_out_are_checked_and_come_in():
    made = trajkit.convert(SAMPLE, to="openai-sft", where=GOOD, output="rows.jsonl")
    assert made.n_rows > 0
    assert trajkit.validate("rows.jsonl", target="openai").n_errors == 0
    count = trajkit.tokens("rows.jsonl", model="gpt-4.1-mini", tokenizer="estimate", epochs=1)
    assert count.n_trained_tokens > 0
    trajkit.convert(SAMPLE, to="atif", include_eval=True, output="atif")
    back = trajkit.import_("atif", from_="atif", output="back")
    assert back.dataset.n_episodes == 55


@pytest.mark.parametrize(
    "is_under_a_loop",
    [pytest.param(False, id="plain", marks=pytest.mark.full), pytest.param(True, id="under a loop")],
)
def test_episodes_are_played_and_measured(is_under_a_loop):
    def work() -> None:
        plan = trajkit.rollout("babyai", task="goto", policy="expert", seeds="0:3", dry_run=True)
        assert (plan.estimate.n_episodes, plan.n_done, plan.path) == (3, 0, None)
        played = trajkit.rollout("babyai", task="goto", policy="expert", seeds="0:3", output="played")
        assert played.is_complete
        assert [row.success.mean for row in played.rows] == [1.0]
        assert played.dataset.n_episodes == 3
        assert repr(played) == "<rollout of babyai: 3 of 3 episodes, played>"
        assert "1.000 ± 0.000" in str(played)
        assert "<td>goto</td>" in played._repr_html_()
        assert played.to_json()["rows"][0]["success"] == {"mean": 1.0, "standard_error": 0.0, "n": 3}
        assert trajkit.replay(played.path).replay.n_verified == 3
        measured = trajkit.evaluate(
            "babyai",
            variants="base=sample:tiny-base,again=sample:tiny-base",
            seeds="200:202",
            task="goto",
            max_steps=3,
            decoding="greedy",
            output="measured",
        )
        assert [group.name for group in measured.report.groups] == ["base", "again"]
        assert not measured.is_reserved
        assert repr(measured) == "<evaluation of babyai: 4 of 4 episodes, measured>"
        assert str(measured).splitlines()[2].startswith("base")
        assert measured.to_json()["groups"][1]["n_missing"] == 0
        assert trajkit.report("measured").groups == measured.report.groups

    async def cell() -> None:
        work()

    if is_under_a_loop:
        asyncio.run(cell())
    else:
        work()


@pytest.mark.full
def test_a_report_holds_or_raises_after_it_was_written():
    for name in ("expert", "random"):
        trajkit.rollout("babyai", task="goto", policy=name, seeds="0:3", purpose="eval", output=name)
    named = {"before": "random", "after": "expert"}
    with pytest.raises(trajkit.TrajkitError, match=r"success\.difference"):
        trajkit.report(named, require="success.difference > 2", resamples=100, output="report")
    assert Path("report/report.json").is_file()
    found = trajkit.report(named, require="success.difference >= 0", resamples=100)
    assert [group.name for group in found.groups] == ["before", "after"]


def test_seeds_are_reserved_and_listed():
    (kept,) = trajkit.reserve("babyai", seeds="200:202", task="goto", no_states=True)
    assert kept.path == Path("trajkit.toml").absolute() or kept.path.name == "trajkit.toml"
    assert [each.reservation for each in trajkit.reserve()] == [kept.reservation]
    with pytest.raises(RequestError, match="is reserved for evaluation"):
        trajkit.rollout("babyai", task="goto", policy="expert", seeds="200:201")


def test_an_environment_is_checked():
    found = trajkit.check_env("babyai", task="goto", seeds="0:1", steps=30)
    assert found
    assert all(check.status != "failed" for check in found)


@pytest.mark.full
def test_a_training_here_is_planned_and_nothing_is_kept():
    trajkit.select(SAMPLE, where="purpose = 'train' and n_steps < 3", output="few")
    job = trajkit.sft_local(
        model="sample:tiny-base", train="few", max_length=4096, set={"lora.r": 4}, dry_run=True
    )
    assert job.recipe["lora"]["r"] == 4
    assert trajkit.jobs_list() == []
    with pytest.raises(RequestError, match="no job was started here"):
        trajkit.jobs_wait()
    with pytest.raises(RequestError, match="the recipe has"):
        trajkit.sft_local(model="sample:tiny-base", train=SAMPLE, set={"no_such": 1}, dry_run=True)


@pytest.mark.full
def test_pairs_are_made_and_learned_from():
    with pytest.raises(NothingMatched):
        trajkit.pairs(SAMPLE, margin=100, no_verify=True, dry_run=True)
    write_walks("walks")
    made = trajkit.pairs("walks", margin=0.5, output="pairs")
    assert remembered("last_pairs") == {"path": str(Path("pairs").absolute())}
    job = trajkit.dpo_local(model="sample:tiny-base", loss_type=["sigmoid"], val_fraction=0, dry_run=True)
    assert job.train.n_rows == made.report.n_pairs == 20


@pytest.mark.full
def test_nothing_is_published_or_asked_without_a_yes(monkeypatch):
    with pytest.raises(ServiceError, match="no token"):
        trajkit.push(SAMPLE, "me/goto")
    planned = trajkit.push(SAMPLE, "me/goto", dry_run=True, allow_findings=True)
    assert "README.md" in planned.plan.change.add
    assert planned.plan.remote is None
    assert planned.facts is not None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with pytest.raises(RequestError, match="may cost money") as error:
        trajkit.rollout("babyai", task="goto", policy="openai", model="gpt-x", episodes=1)
    assert "--yes" in str(error.value.hint)


def test_a_tuned_model_is_registered_only_with_a_yes():
    Path("tensorzero.toml").write_text(
        '[functions.act]\ntype = "chat"\n'
        '[functions.act.variants.plain]\ntype = "chat_completion"\nmodel = "openai::gpt-4.1-mini"\n'
    )
    asked = {"model": "openai::ft:mine", "function": "act", "template_variant": "plain"}
    planned = trajkit.register(**asked, dry_run=True)
    assert any(line.startswith("+") and "ft:mine" in line for line in planned.diff)
    assert planned.registration is None
    with pytest.raises(RequestError, match="this changes"):
        trajkit.register(**asked)
    assert "ft:mine" not in Path("tensorzero.toml").read_text()
    written = trajkit.register(**asked, yes=True)
    assert "ft:mine" in Path("tensorzero.toml").read_text()
    (known,) = trajkit.lineage(written.registration.variant)
    assert known.model.name == "openai::ft:mine"
    assert trajkit.register(undo=True, yes=True).registration == written.registration
    assert "ft:mine" not in Path("tensorzero.toml").read_text()


def test_nobody_answers_where_nothing_is_up():
    assert trajkit.status().to_json() == {"is_up": False, "rows": {}}
    assert str(trajkit.status()) == "nothing is running in this folder"
    assert trajkit.down().services == []
    with pytest.raises(RequestError, match="no source to export from"):
        trajkit.export(metric="episode_return", min=0.7)


def test_a_store_is_exported_by_conditions_on_metrics():
    found = trajkit.export(source=Path(SAMPLE), metric="episode_return", min=0.7, output="good")
    mapped = trajkit.export(source=SAMPLE, metric={"episode_return": (0.7, None)}, output="same")
    assert found.manifest.digest == mapped.manifest.digest
    assert found.tally.n_episodes_kept == found.dataset.n_episodes
    with pytest.raises(RequestError, match="min and max bound one metric"):
        trajkit.export(source=SAMPLE, metric=["a", "b"], min=1)


def test_a_recipe_runs_only_with_a_yes():
    Path("recipe.yaml").write_text(
        "version: 1\nname: look\nsteps:\n"
        "  good:\n    verb: select\n    store: sample:babyai\n    where: outcome = 'success'\n"
    )
    assert trajkit.run("recipe.yaml", output="run", dry_run=True).records == ()
    with pytest.raises(RequestError, match="this runs 1 step"):
        trajkit.run("recipe.yaml", output="run")
    report = trajkit.run("recipe.yaml", output="run", yes=True)
    assert report.failed is None
    assert [record.status for record in report.records] == ["done"]


@pytest.mark.full
def test_the_code_of_the_page_runs(folder):
    environment = dict(os.environ)
    for name, code in zip(("shown", "classes"), blocks(PAGE, "python"), strict=True):
        (folder / f"{name}.py").write_text(code)
        out, err = folder / "out", folder / "err"
        for each in (out, err):
            each.write_text("")
        assert Forked(name, [], folder, environment, ("/dev/null", str(out), str(err))).wait() == 0, (
            err.read_text()
        )
        if name == "shown":
            lines = out.read_text().splitlines()
            assert [line.split()[:2] for line in lines[2:3]] == [["seen", "55"]]
            assert lines[-3:] == ["False", "succeeded 2", "4"]
