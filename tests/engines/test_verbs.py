"""Every verb that derives a store gives the same one in one process and in any number of shards."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines import work
from tests.matrix import daily
from trajkit.curation import redact as redacting
from trajkit.curation.leaks.leak import drop_leaks, leak
from trajkit.curation.leaks.report import LeakKind
from trajkit.curation.masks.mask import mask
from trajkit.curation.merge import merge
from trajkit.curation.redact import redact
from trajkit.curation.replays.replay import replay
from trajkit.curation.scores.score import score
from trajkit.curation.selection.dedupe import dedupe
from trajkit.curation.selection.select import select
from trajkit.curation.selection.split import split
from trajkit.curation.weights.weight import weight
from trajkit.engines.engine import Engine, engine_named, run_here
from trajkit.errors import RequestError, TrajkitError
from trajkit.schema import Episode, Manifest, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import StoreWriter, write_episodes
from trajkit.store.writing.spool import Spool

SAMPLE = "sample:babyai"
Verb = Callable[[Path, Engine | None], Any]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the sample, with one more metric."""
    folder = tmp_path_factory.mktemp("scored")
    select(SAMPLE, folder / "half", where="seed % 2 = 0")
    (folder / "length.py").write_text("def length(episode):\n    return len(episode.steps)\n")
    score(
        folder / "half",
        folder / "scored",
        scorer=f"{folder / 'length.py'}:length",
        name="length",
        journals=folder,
    )
    return folder / "scored"


def in_this_process(n_shards: int) -> Engine:
    """An engine that cuts the work as one with so many workers does."""
    return Engine("local", n_shards, lambda job, indexes, workers: run_here(job, indexes, 1))


def scored_in(goal: Path, engine: Engine | None) -> Any:
    """The sample with a metric of its steps, some of which have none."""
    return score(
        SAMPLE,
        goal,
        scorer=f"{Path(__file__).with_name('work.py')}:place",
        name="place",
        per="step",
        journals=goal.parent / "journal",
        engine=engine,
    )


def redacted_in(goal: Path, engine: Engine | None) -> Any:
    """A store of several parts, with values that are in more than one of them."""
    return redact(mailed(goal.parent / "mails"), goal, engine=engine)


def mailed(path: Path, *, n: int = 9, n_parts: int = 3, said: str = "") -> Path:
    """A store with mail addresses; the first values of a part are known from an earlier one, or new."""
    with StoreWriter(path, kind="test") as writer:
        for part in range(n_parts):
            with Spool(path) as spool:
                for number in range(part, n, n_parts):
                    spool.add(mail(number, said))
                writer.add(spool.connection, **next(spool.parts(())))
        writer.finish()
    return path


def mail(number: int, said: str) -> Episode:
    texts = {"messages": (message("user", f"{said}p{number}@corp.io or p{number // 2}@corp.io asks"),)}
    step = Transition(step_index=0, completion=message("assistant", f"/home/u{number % 4}/x"), **texts)
    return Episode(episode_id=f"e{number:03}", source="test", steps=(step,))


VERBS: dict[str, Verb] = {
    "score": scored_in,
    "redact": redacted_in,
    "replay": lambda goal, engine: replay(SAMPLE, goal, fill=True, engine=engine),
    "select": lambda goal, engine: select(SAMPLE, goal, top="50%", control=True, engine=engine),
    "split": lambda goal, engine: split(SAMPLE, goal, ratio={"train": 0.6, "val": 0.4}, engine=engine),
    "dedupe": lambda goal, engine: dedupe(SAMPLE, goal, exact=True, episodes=True, engine=engine),
    "near": lambda goal, engine: dedupe(SAMPLE, goal, episodes=True, near=0.8, engine=engine),
    "mask": lambda goal, engine: mask(SAMPLE, goal, reasons=["no-op", "loop", "invalid"], engine=engine),
    "weight": lambda goal, engine: weight(SAMPLE, goal, scheme="grpo", by=["task"], engine=engine),
}


def stores(folder: Path) -> dict[str, Manifest]:
    """The stores in a folder by their paths."""
    paths = sorted(path.parent for path in folder.rglob("manifest.json"))
    for path in paths:
        verify(open_store(path))
    return {str(path.relative_to(folder)): open_store(path).manifest for path in paths}


def lineage(manifest: Manifest) -> Any:
    return [entry.model_dump(exclude={"done_at"}) for entry in manifest.lineage]


def same(one: dict[str, Manifest], other: dict[str, Manifest]) -> None:
    assert one.keys() == other.keys()
    assert one
    for name, manifest in one.items():
        found = other[name]
        assert (found.digest, found.counts, found.metrics) == (
            manifest.digest,
            manifest.counts,
            manifest.metrics,
        )
        assert lineage(found) == lineage(manifest)


@pytest.mark.parametrize("n_shards", [3, pytest.param((1, 2, 5), marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("verb", daily(VERBS, {"score", "redact", "near"}))
def test_a_store_is_the_same_in_any_number_of_shards(
    verb: str, n_shards: int | tuple[int, ...], tmp_path: Path
) -> None:
    VERBS[verb](tmp_path / "whole" / "store", None)
    expected = stores(tmp_path / "whole")
    for n in n_shards if isinstance(n_shards, tuple) else (n_shards,):
        folder = tmp_path / str(n)
        VERBS[verb](folder / "store", in_this_process(n))
        same(expected, stores(folder))
        assert not list(folder.glob(".*"))  # nothing is left of the jobs


def test_similar_prompts_are_the_same_in_any_number_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    words = [[f"w{draw.randrange(30)}" for _ in range(60)] for _ in range(4)]

    def told(name: str, n: int, texts: list[list[str]]) -> Path:
        """A store of `n` variants of each text: one word replaced, or in upper case. Half have seeds."""
        episodes = []
        for number in range(len(texts) * n):
            text = list(texts[number % len(texts)])
            place = draw.randrange(len(text))
            text[place] = text[place].upper() if number % 4 == 0 else f"x{number}"
            prompt = (message("system", "Play."), message("user", " ".join(text)))
            step = Transition(
                step_index=0, messages=prompt, completion=message("assistant", f"{name}{number}")
            )
            facts = {"env_id": "e", "task": name, "seed": number} if number % 2 else {}
            episodes.append(Episode(episode_id=f"{name}{number:02}", source="test", steps=(step,), **facts))
        write_episodes(tmp_path / name, episodes, kind="test")
        return tmp_path / name

    train, evaluation, empty = told("train", 6, words), told("eval", 3, words[1:]), told("empty", 0, words)
    for strict in (False, True):
        whole = leak(train, evaluation, near=0.8, strict_text=strict)
        (near,) = (finding for finding in whole.findings if finding.kind == LeakKind.NEAR_PROMPT)
        assert near.n > 3
        for n, most in ((2, 9), (5, 9), (5, 2)):
            monkeypatch.setattr("trajkit.curation.derive.MOST_SHARDS", most)
            found = leak(train, evaluation, near=0.8, strict_text=strict, engine=in_this_process(n))
            assert found == whole
    assert leak(train, empty, engine=in_this_process(2)) == leak(train, empty)
    _, kept = drop_leaks(train, None, other=evaluation, is_train=True, near=0.8)
    _, sharded = drop_leaks(train, None, other=evaluation, is_train=True, near=0.8, engine=in_this_process(3))
    assert kept.left == sharded.left


@pytest.mark.full
def test_merge_and_leak_are_the_same_in_any_number_of_shards(scored: Path, tmp_path: Path) -> None:
    def both(folder: Path, engine: Engine | None) -> dict[str, Manifest]:
        merge([scored, SAMPLE], folder / "merged", prefer="first", engine=engine)
        drop_leaks(SAMPLE, folder / "clean", other=scored, is_train=True, engine=engine)
        return stores(folder)

    expected = both(tmp_path / "whole", None)
    same(expected, both(tmp_path / "shards", in_this_process(3)))


@pytest.mark.full
def test_a_report_of_leaks_is_the_same_in_any_number_of_shards(scored: Path, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    without_seeds = [
        episode.model_copy(update={"seed": None, "episode_id": f"{episode.episode_id}-b", "feedback": ()})
        for episode in open_dataset(scored)
    ]
    write_episodes(noted, without_seeds, kind="test")
    whole = leak(scored, noted)
    assert {LeakKind.PROMPT, LeakKind.PROMPT_ANSWER} <= {finding.kind for finding in whole.findings}
    assert leak(scored, noted, engine=in_this_process(3)) == whole


def test_a_job_that_was_stopped_continues(tmp_path: Path) -> None:
    run: list[tuple[Path, int]] = []

    def stopping(job: Any, indexes: list[int], workers: int | None) -> Iterator[int]:
        for index in run_here(job, indexes, 1):
            run.append((job.folder, index))
            yield index
            if len(run) == 2:
                raise KeyboardInterrupt

    engine = dataclasses.replace(in_this_process(4), run=stopping)
    with pytest.raises(KeyboardInterrupt):
        VERBS["mask"](tmp_path / "a" / "store", engine)
    assert not (tmp_path / "a" / "store").exists()
    VERBS["mask"](tmp_path / "a" / "store", engine)
    assert len(set(run)) == len(run)  # no shard was written twice
    VERBS["mask"](tmp_path / "b" / "store", None)
    same(stores(tmp_path / "a"), stores(tmp_path / "b"))


# -- redact --------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("n_parts", [1, 3, 20])
def test_placeholders_are_numbered_over_all_parts(n_parts: int, tmp_path: Path) -> None:
    """Also after earlier placeholders, and where a pattern matches text beside some placeholder only."""
    file = tmp_path / "patterns"
    file.write_text("beside=HOME_PATH_3\\](/x)\n")
    store = mailed(tmp_path / "mails", n=40, n_parts=n_parts, said="[EMAIL_7] and ")
    alone = redact(store, tmp_path / "a" / "store", pattern_file=file)
    shared = redact(store, tmp_path / "b" / "store", pattern_file=file, engine=in_this_process(2))
    same(stores(tmp_path / "a"), stores(tmp_path / "b"))
    assert shared.report == alone.report
    assert alone.report.n_by_kind == {"email": 80, "home-path": 40, "beside": 10}
    assert redact(store, None, engine=in_this_process(2)).report.n_by_kind == {"email": 80, "home-path": 40}
    assert not list((tmp_path / "b").glob(".*"))


def test_a_pattern_that_would_be_kept_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a pattern may be secret"):
        redact(SAMPLE, tmp_path / "store", patterns={"mine": "s3cret"}, engine=in_this_process(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_no_value_is_in_the_files_of_shards(tmp_path: Path) -> None:
    store = mailed(tmp_path / "mails")
    seen: list[bytes] = []

    def looking(job: Any, indexes: list[int], workers: int | None) -> Iterator[int]:
        yield from run_here(job, indexes, 1)
        seen.extend(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())

    redact(store, tmp_path / "out" / "store", engine=dataclasses.replace(in_this_process(2), run=looking))
    assert len(seen) > 10
    assert not [each for each in seen if b"corp.io" in each]


@pytest.mark.full
def test_redact_goes_on_after_a_worker_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = mailed(tmp_path / "mails")
    redact(store, tmp_path / "a" / "store")
    monkeypatch.setenv("TRAJKIT_TEST_KILLED", str(tmp_path / "killed"))
    monkeypatch.setattr(redacting, "redact_parts", work.redact_parts)
    engine = engine_named("local", 2)
    with pytest.raises(TrajkitError, match="a worker process died"):
        redact(store, tmp_path / "b" / "store", engine=engine)
    assert not (tmp_path / "b" / "store").exists()
    redact(store, tmp_path / "b" / "store", engine=engine)
    same(stores(tmp_path / "a"), stores(tmp_path / "b"))
