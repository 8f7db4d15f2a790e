"""Commands in shards: the result is that of one process, whatever the shards, and after a worker dies."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import trajkit
from tests.commands import dying
from tests.engines.conftest import sbatch
from tests.matrix import daily
from tests.store.written import write_once
from trajkit.commands import sharding
from trajkit.commands.sharding import Shards, state_of
from trajkit.curation.rows import made
from trajkit.curation.rows.file import convert
from trajkit.engines.engine import engine_named
from trajkit.errors import DataError, NothingMatched, RequestError, TrajkitError
from trajkit.formats.validation.file import validate
from trajkit.rollouts.options import Options
from trajkit.rollouts.session import open_run, prepare
from trajkit.rollouts.shards import play_shards
from trajkit.schema import Episode, Manifest, Message, ToolCallBlock, Transition, message
from trajkit.sources.files.importing import Wish, import_files, read_shards
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

__all__ = ["sbatch"]


class Here:
    """A division whose tasks run in this process, as JSON like those of an engine, each `times` times."""

    def __init__(self, n: int, folder: Path, *, times: int = 1) -> None:
        self.n, self.folder, self._times = n, folder, times

    def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
        taken, given = sharding._kinds(function)
        place = f"{function.__module__}:{function.__qualname__}"
        found = []
        for task in tasks:
            item = {
                "function": place,
                "folder": str(Path.cwd()),
                "task": taken.dump_python(task, mode="json"),
            }
            for _ in range(self._times):
                result = sharding.run_task(json.loads(json.dumps(item)))
            found.append(given.validate_python(json.loads(json.dumps(result))))
        return found


def episode(number: int, **step: Any) -> Episode:
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("user", f"{number} turn {index}"),),
            **{"completion": message("assistant", "é" * (number % 5 + 1)), **step},
        )
        for index in range(number % 3 + 1)
    )
    return Episode(episode_id=f"e{number:03}", source="test", purpose="train", steps=steps)


@pytest.fixture
def dataset(folder: Path) -> Dataset:
    write_once(folder / "store", map(episode, range(11)))
    return open_dataset("store")


def without_times(manifest: Manifest) -> tuple[Any, ...]:
    lineage = [entry.model_dump(exclude={"done_at"}) for entry in manifest.lineage]
    return manifest.digest, manifest.counts, manifest.source, manifest.metrics, manifest.kind, lineage


# -- convert -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "name", "shards", "options"),
    [
        ("openai-sft", "rows.jsonl", (2, 20), {}),
        pytest.param("openai-sft", "rows.parquet", (2,), {}, marks=pytest.mark.full),
        ("trl-messages", "rows.jsonl", (3,), {"tokenizer": "estimate", "max_length": 14, "overlong": "drop"}),
        pytest.param("sharegpt", "folder", (3,), {}, marks=pytest.mark.full),
    ],
    ids=["lines", "parquet", "counted", "folder"],
)
def test_a_training_file_has_the_same_bytes_whatever_the_shards(
    to: str, name: str, shards: tuple[int, ...], options: dict[str, Any], dataset: Dataset, folder: Path
) -> None:
    alone = convert(dataset, folder / "alone" / name, to=to, **options)
    for n in shards:
        division = Here(n, folder / f"shards-{n}", times=2 if n == 2 else 1)
        shared = convert(dataset, folder / f"{n}" / name, to=to, division=division, **options)
        paths = {"path", "data", "provenance"}
        assert shared.model_dump(exclude=paths) == alone.model_dump(exclude=paths)
        assert shared.data.read_bytes() == alone.data.read_bytes()
        assert alone.provenance is not None
        origin, other = (pq.read_table(each.provenance) for each in (alone, shared))  # type: ignore[arg-type]
        assert other.equals(origin)
        assert other.schema.metadata == origin.schema.metadata


def test_an_answer_that_is_only_context_decides_for_all_shards(folder: Path) -> None:
    odd = episode(10).model_copy(update={"episode_id": "e010"})
    masked = odd.steps[0].model_copy(update={"loss_weight": 0.0})
    chained = odd.steps[1].model_copy(
        update={"messages": (*(masked.messages or ()), masked.completion, message("user", "more"))}
    )
    odd = odd.model_copy(update={"steps": (masked, chained)})
    write_episodes(folder / "store", [*map(episode, range(10)), odd], kind="test")
    dataset = open_dataset("store")
    alone = convert(dataset, folder / "alone.jsonl", to="sharegpt")
    shared = convert(dataset, folder / "shared.jsonl", to="sharegpt", division=Here(3, folder / "work"))
    assert alone.data.read_bytes() == shared.data.read_bytes()
    assert (alone.format, alone.warnings) == (shared.format, shared.warnings)


def test_refused_rows_of_all_shards_are_one_error(folder: Path) -> None:
    call = Message(role="assistant", content=(ToolCallBlock(id="1", name="go", arguments="{}"),))
    bad = [episode(number, completion=call) for number in (2, 8)]
    write_episodes(folder / "store", [*map(episode, (0, 1, 3, 4)), *bad], kind="test")
    messages = []
    for division in (None, Here(3, folder / "work")):
        with pytest.raises(DataError, match="6 rows would be refused as openai-sft: ") as e:
            convert(open_dataset("store"), folder / "rows.jsonl", to="openai-sft", division=division)
        messages.append(str(e.value))
    assert "openai-sft: episode e002 step 0: " in messages[0]
    assert "openai-sft: shard 1 of 3, episode e002 step 0: " in messages[1]
    assert re.sub(r"shard [0-9] of 3, ", "", messages[1]) == messages[0]
    assert not (folder / "rows.jsonl").exists()


def test_long_rows_are_named_with_their_shard(dataset: Dataset, folder: Path) -> None:
    division, options = Here(3, folder / "work"), {"tokenizer": "estimate", "max_length": 9}
    with pytest.raises(DataError, match=r"rows longer than 9 tokens: shard [1-3] of 3, episode e00"):
        convert(dataset, folder / "rows.jsonl", to="trl-messages", division=division, **options)


def test_formats_without_shards_say_so(dataset: Dataset, folder: Path) -> None:
    with pytest.raises(RequestError, match="transitions is written in one piece"):
        convert(dataset, folder / "rows.jsonl", to="transitions", division=Here(2, folder / "work"))


# -- import --------------------------------------------------------------------------------------------------


def conversation(number: int, **columns: Any) -> str:
    said = [{"role": "user", "content": f"hello {number}"}, {"role": "assistant", "content": "yes"}]
    return json.dumps({"messages": said, **columns})


def shared_import(place: Path, goal: Path, n: int, wish: Wish) -> Any:
    from trajkit.curation.merge import join

    intake, stores = read_shards(str(place), wish, Here(n, goal.with_name(f"{goal.name}-work"), times=2))
    entry = intake.entry(str(place))
    return intake.imported(str(place), goal, join(stores, goal, lineage=(entry,)))


@pytest.mark.full
@pytest.mark.parametrize("kind", daily(["one file", "many files"], 1))
def test_an_import_is_the_same_whatever_the_shards(kind: str, folder: Path) -> None:
    lines = [conversation(number, score=number / 2) for number in range(9)] + ["{not JSON"]
    place = folder / "logs.jsonl"
    if kind == "many files":
        place = folder / "logs"
        place.mkdir()
        for number, line in enumerate(lines):
            (place / f"{number}.jsonl").write_text(line + "\n")
        for number in range(3):
            (place / f"{number}.txt").write_text("other")
    else:
        place.write_text("\n".join(lines) + "\n")
    wish = Wish(format="hf-messages", skip_bad=True, metrics={"score": "columns.score"})
    alone, _ = import_files(place, folder / "alone", wish)
    for n in (1, 3):
        shared = shared_import(place, folder / f"shared-{n}", n, wish)
        assert without_times(open_store(folder / f"shared-{n}").manifest) == without_times(
            open_store(folder / "alone").manifest
        )
        assert shared.model_dump(exclude={"store"}) == alone.model_dump(exclude={"store"})


def test_a_bad_document_of_one_shard_is_named_and_no_store_is_made(folder: Path) -> None:
    (folder / "logs.jsonl").write_text("\n".join([*map(conversation, range(6)), "{not JSON"]) + "\n")
    with pytest.raises(DataError, match=r"1 of 7 .* cannot be read as .*: shard 3 of 3, logs\.jsonl:7: "):
        read_shards("logs.jsonl", Wish(format="hf-messages"), Here(3, folder / "work"))


def test_nothing_in_any_shard_is_nothing_matched(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "a.txt").write_text("other")
    with pytest.raises(NothingMatched, match="no episode in logs"):
        read_shards("logs", Wish(format="hf-messages"), Here(2, folder / "work"))


@pytest.mark.full
def test_ids_that_repeat_across_shards_are_numbered_as_in_one_process(folder: Path) -> None:
    (folder / "logs.jsonl").write_text((conversation(1) + "\n") * 8)
    alone = trajkit.import_("logs.jsonl", from_="hf-messages", output="alone")
    shared = trajkit.import_("logs.jsonl", from_="hf-messages", output="shared", on="local", workers=2)
    assert alone.manifest is not None
    assert shared.manifest is not None
    assert without_times(alone.manifest) == without_times(shared.manifest)


# -- tokens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", daily(["rows.jsonl", "rows.parquet"], 1))
def test_counts_of_shards_add_up_exactly(name: str, dataset: Dataset, folder: Path) -> None:
    convert(dataset, folder / name, to="openai-sft")
    if name.endswith("jsonl"):
        lines = (folder / name).read_text().splitlines()
        lines[0], lines[4], lines[7] = "[]", "{not JSON", '{"messages": []}'
        (folder / name).write_text("\n".join([*lines, "", '{"prompt": 1}']) + "\n")
    for target in ("openai", "trl"):
        alone = validate(folder / name, target=target, tokenizer="estimate", max_length=14)
        for n in (1, 2, 3, 40):
            division = Here(n, folder / "work")
            assert (
                validate(folder / name, target=target, tokenizer="estimate", max_length=14, division=division)
                == alone
            )


# -- rollout and evaluate ------------------------------------------------------------------------------------

EXPERT = {"env_id": "babyai", "tasks": ("goto",), "policy": "expert", "seeds": "0:5"}


def played(episode: Episode) -> Any:
    """What was played, without ids and times."""
    steps = [(step.observation, step.action, step.reward) for step in episode.steps]
    return episode.task, episode.seed, episode.metrics, steps


def manifest_of_run(store: str) -> Any:
    _, counts, source, metrics, kind, ((entry),) = without_times(open_store(store).manifest)
    runs = {source.pop("run"), entry["arguments"].pop("run")}
    assert len(runs) == 1
    assert {(each.origin or {})["run"] for each in open_dataset(store)} == runs
    return counts, source, metrics, kind, entry


@pytest.mark.full
def test_a_rollout_in_shards_plays_what_one_process_plays(folder: Path) -> None:
    for n in (0, 1, 3):
        session = prepare(Options.model_validate({**EXPERT, "store": f"store-{n}", "new_run": True}))
        with open_run(session) as run:
            if n == 0:
                run.play(on_played=lambda _: None)
            else:
                division = Here(n, folder / "work", times=2)
                play_shards(run, division, on_done=lambda *_: None, on_failed=pytest.fail)
                assert run.journal.n_done == 5
            run.write()
    alone, one, three = (sorted(map(played, open_dataset(f"store-{n}")), key=repr) for n in (0, 1, 3))
    assert alone == one == three
    assert manifest_of_run("store-0") == manifest_of_run("store-1") == manifest_of_run("store-3")


def test_a_rollout_goes_on_from_the_journals_of_its_shards(folder: Path) -> None:
    """Also with another number of shards; nothing is played twice."""

    class Dies(Here):
        def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
            super().map(function, tasks[:2])
            raise TrajkitError("a worker died")

    session = prepare(Options.model_validate({**EXPERT, "store": "store"}))
    done: list[Episode] = []
    with open_run(session) as run, pytest.raises(TrajkitError, match="a worker died"):
        play_shards(
            run, Dies(4, folder / "a"), on_done=lambda _, episode: done.append(episode), on_failed=pytest.fail
        )
    before = len(done)
    assert 0 < before < 5
    with open_run(session) as run:
        assert run.journal.n_done == before
        play_shards(
            run, Here(2, folder / "b"), on_done=lambda _, episode: done.append(episode), on_failed=pytest.fail
        )
        run.write()
    assert len(done) == 5
    assert {each.episode_id for each in done} == {each.episode_id for each in open_dataset("store")}


def test_the_limits_of_a_run_are_divided_among_its_shards(folder: Path) -> None:
    session = prepare(Options.model_validate({**EXPERT, "max_calls": 2}))
    with open_run(session) as run, pytest.raises(RequestError, match="--max-calls 2 cannot be divided"):
        play_shards(run, Here(3, folder / "a"), on_done=lambda *_: None, on_failed=pytest.fail)


# -- the door ------------------------------------------------------------------------------------------------


def test_a_secret_in_the_options_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match="PATH has a secret"):
        trajkit.import_("http://me:secret@127.0.0.1:9", from_="langfuse", output="store", workers=2)


def test_a_secret_setting_of_an_environment_is_in_no_file(dataset: Dataset, folder: Path) -> None:
    with pytest.raises(RequestError, match="--env-set has a secret"):
        trajkit.replay("store", env_set={"api_key": "s3cr3t-of-mine"}, workers=2)
    assert not [path for path in folder.rglob("*.json") if "s3cr3t" in path.read_text()]


def test_what_was_done_of_a_file_that_has_changed_since_does_not_count(folder: Path) -> None:
    file, seen = folder / "read.txt", []
    for text in ("one", "three"):
        file.write_text(text)
        engine = engine_named("local", 1)
        assert engine is not None
        with (
            contextlib.suppress(ZeroDivisionError),
            Shards(engine, "size", folder / "work", reads=state_of(file)) as shards,
        ):
            seen += shards.map(size_of, [str(file)])
            raise ZeroDivisionError  # the command stops, and its folder stays
    assert seen == [3, 5]


def size_of(path: str) -> int:
    return Path(path).stat().st_size


@pytest.mark.parametrize("on", ["local", pytest.param("slurm", marks=pytest.mark.full)])
def test_convert_by_real_processes(on: str, dataset: Dataset, folder: Path, sbatch: None) -> None:
    alone = convert(dataset, folder / "alone.jsonl", to="openai-sft")
    shared = trajkit.convert("store", to="openai-sft", output="shared.jsonl", on=on, workers=2)
    assert shared.sha256 == alone.sha256
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


@pytest.mark.full
def test_the_same_command_goes_on_after_a_worker_was_killed(
    dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = convert(dataset, folder / "alone.jsonl", to="openai-sft")
    monkeypatch.setattr(made, "make_shard", dying.make_shard)
    with pytest.raises(TrajkitError, match="a worker process died"):
        trajkit.convert("store", to="openai-sft", output="shared.jsonl", workers=2)
    shared = trajkit.convert("store", to="openai-sft", output="shared.jsonl", workers=2)
    assert shared.sha256 == alone.sha256
