from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.curation.conftest import make_attempt as attempt
from tests.matrix import portions
from trajkit._core.files import sha256_file
from trajkit.cli import main
from trajkit.curation.leaks import near
from trajkit.curation.leaks.near import N_VALUES, normal, rows_per_band
from trajkit.curation.leaks.texts import shingle_hashes
from trajkit.curation.selection.dedupe import (
    NEAR_STEP,
    NOTHING_NEW,
    SAME_EPISODE,
    SAME_STEP,
    dedupe,
    groups_path,
)
from trajkit.errors import RequestError, StoreError
from trajkit.schema import Episode, Manifest, Message, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.engine import connect
from trajkit.store.reader import Store, open_store, verify

Attempts = Callable[..., Store]


def learned(path: Path) -> list[tuple[str, int]]:
    return [
        (episode.episode_id, step.step_index)
        for episode in open_dataset(path)
        for step in episode.steps
        if step.loss_weight > 0
    ]


def groups(goal: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[:5] for row in pq.read_table(groups_path(goal)).to_pylist()]


def done(store: Store, goal: Path, **options: Any) -> Manifest:
    manifest, entry = dedupe(store.path, goal, **options)
    assert entry == manifest.lineage[-1]
    assert entry.n_episodes_in - sum(left.n_episodes for left in entry.left) == manifest.counts.n_episodes
    return manifest


@pytest.mark.full
def test_a_step_that_repeats_another_stays_as_context_and_is_not_learned(
    attempts: Attempts, tmp_path: Path
) -> None:
    store = attempts(
        [
            attempt("a", prompts=["see", "see", "look"], answers=["go", "go", "go"]),
            attempt("b", prompts=[" see\n", "see"], answers=["go", "stay"]),
        ]
    )
    manifest = done(store, tmp_path / "out", exact=True)
    assert learned(tmp_path / "out") == [("a", 0), ("a", 2), ("b", 1)]
    assert groups(tmp_path / "out") == [("exact", "a", 1, "a", 0), ("exact", "b", 0, "a", 0)]
    entry = manifest.lineage[-1]
    assert (entry.left, [(m.reason, m.n_steps) for m in entry.masked]) == ((), [(SAME_STEP, 2)])
    assert entry.arguments == {
        "exact": True,
        "result": {
            "groups": "out.duplicates.parquet",
            "groups_sha256": sha256_file(groups_path(tmp_path / "out")),
        },
    }
    assert [step.mask_reason for step in open_dataset(tmp_path / "out").episode("b").steps] == [
        SAME_STEP,
        None,
    ]
    verify(open_store(tmp_path / "out"), deep=True)


def test_an_episode_leaves_when_nothing_that_it_taught_is_left(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts(
        [
            attempt("a", prompts=["one", "two"]),
            attempt("b", prompts=["two", "one"]),
            attempt("c", prompts=["three"], step={"loss_weight": 0.0, "mask_reason": "no-op"}),
            attempt("d", prompts=["three"]),
        ]
    )
    manifest = done(store, tmp_path / "out", exact=True)
    # c taught nothing before and is left as it was; what it does not teach makes d no duplicate
    assert learned(tmp_path / "out") == [("a", 0), ("a", 1), ("d", 0)]
    assert [(left.reason, left.n_episodes) for left in manifest.lineage[-1].left] == [(NOTHING_NEW, 1)]
    assert open_dataset(tmp_path / "out").episode("c").steps[0].mask_reason == "no-op"


def test_the_same_actions_from_the_same_start_are_one_episode(attempts: Attempts, tmp_path: Path) -> None:
    def played(name: str, *actions: str, **fields: Any) -> Episode:
        return attempt(
            name, answers=list(actions), n_steps=len(actions), prompts=[name] * len(actions), **fields
        )

    store = attempts(
        [
            played("a", "left", "go"),
            played("b", "left", "go"),
            played("c", "go", "left"),
            played("d", "left", "go", seed=2),
            played("e", "left", "go", seed=3, initial_state_hash="s"),
            played("f", "left", "go", seed=4, initial_state_hash="s"),
            played("g", "left", "go", seed=5, initial_state_hash="text:t"),
            played("h", "left", "go", seed=6, initial_state_hash="text:t"),
            played("i", "left", "go", purpose="eval"),
            attempt("j", seed=None, prompts=["x", "y"], answers=["left", "go"]),
            attempt("k", seed=None, prompts=["x", "z"], answers=["left", "go"]),
            attempt("l", seed=None, prompts=["w", "z"], answers=["left", "go"]),
        ]
    )
    manifest = done(store, tmp_path / "out", episodes=True)
    assert groups(tmp_path / "out") == [
        ("episode", "b", None, "a", None),
        ("episode", "f", None, "e", None),
        ("episode", "k", None, "j", None),
    ]
    assert [(left.reason, left.n_episodes) for left in manifest.lineage[-1].left] == [(SAME_EPISODE, 3)]
    assert manifest.lineage[-1].masked == ()


def test_prompts_that_are_nearly_the_same_with_the_same_action_count_once(
    attempts: Attempts, tmp_path: Path
) -> None:
    words = [f"word{number}" for number in range(100)]
    like = [*words[:50], "other", *words[51:]]  # 92 of 100 shingles of 5 in common of 101: 91 of 101
    far = [*words[:50], *(f"else{number}" for number in range(50))]
    store = attempts(
        [
            attempt("a", prompts=[" ".join(words)]),
            attempt("b", prompts=[" ".join(like).upper(), "apart"]),
            attempt("c", prompts=[" ".join(far)]),
            attempt("d", prompts=[" ".join(words)], answers=["stay"]),
            attempt("e", prompts=[" ".join(like)], purpose="eval"),
        ]
    )
    manifest = done(store, tmp_path / "out", near=0.8)
    assert learned(tmp_path / "out") == [("a", 0), ("b", 1), ("c", 0), ("d", 0), ("e", 0)]
    assert groups(tmp_path / "out") == [("near", "b", 0, "a", 0)]
    assert [(m.reason, m.n_steps) for m in manifest.lineage[-1].masked] == [(NEAR_STEP, 1)]
    assert manifest.lineage[-1].arguments["shingle"] == 5
    (similarity,) = pq.read_table(groups_path(tmp_path / "out")).column("similarity").to_pylist()
    # 96 runs each of which 91 are common: 91 of 101; four standard errors of the estimate
    assert abs(similarity - 91 / 101) < 4 * 0.044
    done(store, tmp_path / "strict", near=1.0)
    assert groups(tmp_path / "strict") == []


def test_progress_counts_every_step(attempts: Attempts) -> None:
    store = attempts([attempt("a", prompts=["one", "two"]), attempt("b", prompts=["two", "three"])])
    told: list[tuple[int, int]] = []
    dedupe(store.path, None, near=0.9, on_progress=lambda *numbers: told.append(numbers))
    assert told[-1] == (4, 4)


def test_different_instructions_are_never_near(attempts: Attempts, tmp_path: Path) -> None:
    def told(name: str, system: str) -> Episode:
        steps = (
            Transition(
                step_index=0,
                messages=(message("system", system), message("user", "a long prompt of the very same words")),
                completion=message("assistant", "go"),
                action="go",
            ),
        )
        return attempt(name).model_copy(update={"steps": steps})

    store = attempts([told("a", "Find the key."), told("b", "Find the box."), told("c", "Find  the key. ")])
    dedupe(store.path, tmp_path / "out", near=0.5)
    assert groups(tmp_path / "out") == [("near", "c", 0, "a", 0)]


def test_a_conversation_is_compared_by_the_whole_prompt(attempts: Attempts, tmp_path: Path) -> None:
    """However it is stored: what is kept from the step before counts as if it stood there."""
    first, answer, second = message("user", "one"), message("assistant", "go"), message("user", "two")
    kept = (
        Transition(step_index=0, messages=(first,), completion=answer),
        Transition(step_index=1, n_prompt_kept=2, messages=(second,), completion=answer),
    )
    alone = (Transition(step_index=0, messages=(first, answer, second), completion=answer),)
    other = (Transition(step_index=0, messages=(second,), completion=answer),)
    store = attempts(
        [
            attempt(name).model_copy(update={"steps": steps})
            for name, steps in (("a", kept), ("b", alone), ("c", other))
        ]
    )
    dedupe(store.path, tmp_path / "out", exact=True)
    assert groups(tmp_path / "out") == [("exact", "b", 0, "a", 1)]


def test_near_prompts_share_word_n_grams_inside_messages_and_not_across_them(
    attempts: Attempts, tmp_path: Path
) -> None:
    """So every message is signed once, however often later prompts repeat it."""
    words = [f"word{number}" for number in range(60)]
    first, answer = message("user", " ".join(words)), message("assistant", "go")
    asked, like, far = (message("user", text) for text in ("what now", "and what now", " ".join(words[30:])))
    grown = (
        Transition(step_index=0, messages=(first,), completion=answer),
        Transition(step_index=1, n_prompt_kept=2, messages=(asked,), completion=answer),
    )
    whole = (Transition(step_index=0, messages=(first, answer, like), completion=answer),)
    turned = (Transition(step_index=0, messages=(asked, answer, first), completion=answer),)
    other = (Transition(step_index=0, messages=(far, answer, asked), completion=answer),)
    names = {"a": grown, "b": whole, "c": turned, "d": other}
    store = attempts([attempt(name).model_copy(update={"steps": steps}) for name, steps in names.items()])
    dedupe(store.path, tmp_path / "out", near=0.9)
    assert [row[1:] for row in groups(tmp_path / "out")] == [
        ("a", 1, "a", 0),
        ("b", 0, "a", 0),
        ("c", 0, "a", 0),
    ]


def test_ids_of_tool_calls_do_not_tell_steps_apart_and_arguments_do(
    attempts: Attempts, tmp_path: Path
) -> None:
    def calling(name: str, call: str, arguments: str) -> Episode:
        block = {"type": "tool_call", "id": call, "name": "move", "arguments": arguments}
        answer = Message.model_validate({"role": "assistant", "content": [block]})
        steps = (Transition(step_index=0, messages=(message("user", "see"),), completion=answer),)
        return attempt(name).model_copy(update={"steps": steps})

    same, other = '{"id": 1}', '{"id": 2}'  # an id inside the arguments is no id of a call
    store = attempts([calling("a", "x1", same), calling("b", "x2", same), calling("c", "x3", other)])
    dedupe(store.path, tmp_path / "out", exact=True)
    assert groups(tmp_path / "out") == [("exact", "b", 0, "a", 0)]


def test_what_cannot_be_compared_is_counted(attempts: Attempts, tmp_path: Path) -> None:
    unknown = (
        Transition(step_index=0, completion=message("assistant", "go")),
        Transition(step_index=1, completion=message("assistant", "go")),
    )
    store = attempts([attempt("a").model_copy(update={"steps": unknown}), attempt("b")])
    _, entry = dedupe(store.path, None, exact=True)
    assert entry.result["n_not_compared"] == 2
    assert entry.masked == ()


# with a combining accent, and white space that JSON escapes, that it does not, and that is beyond ASCII
_texts = st.text(st.sampled_from('ae" \\\n\t\r\f/{}:,é\u0301\u00a0\u3000\u2028'), max_size=8)


def plain(text: str) -> str:
    """What the normalisation is said to be, in plain Python."""
    composed = unicodedata.normalize("NFC", text)
    return " ".join(composed.split())


_spaced = st.lists(_texts, min_size=1, max_size=3).flatmap(
    lambda texts: st.tuples(
        st.just(texts),
        st.lists(_texts, min_size=1, max_size=3)
        | st.tuples(*(st.permutations([text, " ", "\n"]).map("".join) for text in texts)).map(list),
    )
)


@portions(10)
@settings(max_examples=10, deadline=None)
@given(_spaced)
def test_texts_are_the_same_exactly_when_they_are_after_normalisation(
    portion: int,
    pair: tuple[list[str], list[str]],
) -> None:
    with connect() as connection:
        spelled = [json.dumps(texts, ensure_ascii=False, separators=(",", ":")) for texts in pair]
        rows = connection.execute(
            f"SELECT {normal('CAST(json(t) AS VARCHAR)')} FROM unnest(?) AS r(t)", [spelled]
        ).fetchall()
    one, other = (list(map(plain, texts)) for texts in pair)
    assert (rows[0] == rows[1]) is (one == other)


def shingles(text: str, n: int) -> set[tuple[str, ...]]:
    words = "".join(c if c.isalnum() or c == "_" or ord(c) > 127 else " " for c in text).lower().split()
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


_words = st.lists(st.sampled_from(["a", "b", "Be", "c_1", "é", ",", "."]), max_size=9).map(" ".join)


@portions(5)
@settings(max_examples=20, deadline=None)
@given(st.lists(_words, min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 2))
def test_runs_of_words_have_equal_hashes_when_they_are_equal(
    portion: int, texts: list[str], n: int, skipped: int
) -> None:
    """Over texts that lie side by side in one buffer, which may begin in the middle of it."""
    array = pa.array(["zz zz"] * skipped + texts).slice(skipped)
    hashes, offsets = shingle_hashes(array, n)
    assert len(offsets) == len(texts) + 1
    by_hash: dict[int, tuple[str, ...]] = {}
    for i, text in enumerate(texts):
        found = hashes[offsets[i] : offsets[i + 1]].tolist()
        expected = shingles(text, n)
        assert len(set(found)) == len(expected)
        words = sum(1 for word in text.split() if word not in ",.")
        assert len(found) == max(1, words - n + 1)
        assert len(by_hash | dict.fromkeys(found)) == len(set(by_hash) | set(found))
        others = {run for j, other in enumerate(texts) if j < i for run in shingles(other, n)}
        earlier = {h for j in range(i) for h in hashes[offsets[j] : offsets[j + 1]].tolist()}
        assert len(set(found) & earlier) == len(expected & others)


def test_an_estimate_is_within_its_error(tmp_path: Path) -> None:
    import rensa

    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(words[start : start + 200]) for start in (0, 20, 60, 100)]
    hashes, offsets = shingle_hashes(pa.array(texts), 3)
    rows = rensa.RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets, N_VALUES, 1).to_rows()
    matrix = np.array(rows)
    for other, text in enumerate(texts):
        one, two = shingles(texts[0], 3), shingles(text, 3)
        assert abs((matrix[0] == matrix[other]).mean() - len(one & two) / len(one | two)) < 4 * 0.044


@pytest.mark.parametrize(("threshold", "n_rows"), [(1.0, 32), (0.9, 8), (0.8, 4), (0.5, 2), (0.2, 1)])
def test_bands_find_a_pair_at_the_threshold(threshold: float, n_rows: int) -> None:
    assert rows_per_band(threshold) == n_rows
    if n_rows > 1:
        assert 1 - (1 - threshold**n_rows) ** (N_VALUES / n_rows) >= 0.99


_step = st.tuples(st.sampled_from(["one two three", "one two four", "five", " five "]), st.sampled_from("xy"))


@portions(3)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(_step, max_size=4), min_size=1, max_size=6), data=st.data())
def test_no_layout_and_no_thread_changes_what_is_dropped_and_every_group_is_one(
    portion: int, rows: list[list[tuple[str, str]]], data: st.DataObject, attempts: Attempts
) -> None:
    episodes = [
        attempt(f"e{i}", prompts=[p for p, _ in steps], answers=[a for _, a in steps], n_steps=0)
        for i, steps in enumerate(rows)
    ]
    places = data.draw(st.permutations(range(len(episodes))))
    cut = data.draw(st.integers(0, len(episodes)))
    parts = [part for part in (places[:cut], places[cut:]) if part]
    found = []
    for store, threads in ((attempts(episodes), 1), (attempts(episodes, parts), 3)):
        goal = store.path.with_name(f"{store.path.name}-out")
        manifest = done(store, goal, exact=True, episodes=True, near=0.6, shingle=1, threads=threads)
        found.append((manifest.digest, groups(goal), manifest.lineage[-1].left, manifest.lineage[-1].masked))
        known = {(f"e{i}", j): step for i, steps in enumerate(rows) for j, step in enumerate(steps)}
        for kind, episode_id, step_index, kept_id, kept_step in groups(goal):
            if kind == "episode":
                assert episode_id > kept_id
                continue
            assert (episode_id, step_index) > (kept_id, kept_step)
            one, other = known[episode_id, step_index], known[kept_id, kept_step]
            assert one[1] == other[1]
            assert kind == "near" or one[0].strip() == other[0].strip()
        dropped = {row[1:3] for row in groups(goal)}
        gone = {row[1] for row in groups(goal) if row[0] == "episode"}
        alive = [at for at in known if at not in dropped and at[0] not in gone]
        assert learned(goal) == sorted(alive)
        exact = [(known[at][0].strip(), known[at][1]) for at in alive]
        assert len(exact) == len(set(exact))
    assert found[0] == found[1]


@pytest.mark.full
def test_little_memory_is_enough(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts(
        [
            attempt(f"e{i:03}", prompts=[f"prompt {i} {j} " + "x " * 500 for j in range(20)])
            for i in range(100)
        ]
    )
    _, entry = dedupe(store.path, None, exact=True, near=0.9, memory_limit="100MB")
    assert entry.n_steps_out == 2000


@pytest.mark.parametrize(
    "options", [{}, {"near": 0.0}, {"near": 1.5}, {"near": 0.9, "shingle": 0}, {"exact": True, "shingle": 65}]
)
def test_a_request_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        dedupe("nowhere", None, **options)


def test_a_file_of_groups_in_the_way_is_refused(attempts: Attempts, tmp_path: Path) -> None:
    groups_path(tmp_path / "out").write_text("mine")
    with pytest.raises(StoreError, match=r"out\.duplicates\.parquet exists already"):
        dedupe(attempts([attempt("a")]).path, tmp_path / "out", exact=True)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_now_exists(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = attempts([attempt("a", prompts=["see", "see"]), attempt("b")])
    assert main.run(["dedupe", str(store.path), "--exact", "-o", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].split() == ["of", "them", "not", "learned:", *SAME_STEP.split(), "1"]
    assert lines[-1] == "out.duplicates.parquet  the dropped rows and their groups"
    assert main.run(["dedupe", str(store.path)]) == 2
    assert capsys.readouterr().err == (
        "error: no comparison is chosen\nhint: --exact, --episodes or --near 0.9 (near=0.9)\n"
    )


@pytest.mark.parametrize("n_bands", [1_000_000, 3])
def test_a_bucket_is_looked_at_again_whenever_its_first_prompt_is_dropped(
    n_bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "_BANDS_AT_ONCE", n_bands)
    alike = [0, 0, 2, 2, 4, 4]  # prompt 1 is like 0, 3 like 2, 5 like 4
    buckets = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (2, 4), (2, 5)]
    with connect() as connection:
        signatures = pa.table(
            {
                "number": range(6),
                "frame": pa.array([0] * 6, pa.uint64()),
                "signature": [np.full(N_VALUES, value, near._SAVED).tobytes() for value in alike],
            }
        )
        bands = pa.table({"number": [n for _, n in buckets], "bucket": [b for b, _ in buckets]})
        for name, rows in ((near.SIGNATURES, signatures), (near.BANDS, bands)):
            connection.register("made", rows)
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM made")
        derivation: Any = SimpleNamespace(connection=connection)
        found = near._standing(derivation, 0.9).to_pylist()
    assert [(row["number"], row["kept"]) for row in found] == [(1, 0), (3, 2), (5, 4)]
