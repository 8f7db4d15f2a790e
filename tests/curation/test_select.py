from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.curation.conftest import make_attempt as attempt
from tests.matrix import daily, portions
from trajkit._core.settings import remembered
from trajkit.cli import main
from trajkit.curation.leaks.leak import leak
from trajkit.curation.selection.pool import drawn
from trajkit.curation.selection.select import Share, parse_share, select
from trajkit.errors import DataError, NothingMatched, QueryError, RequestError, StoreError
from trajkit.schema import LineageEntry, Manifest
from trajkit.store.dataset import open_dataset
from trajkit.store.engine import connect
from trajkit.store.reader import Store

Attempts = Callable[..., Store]
Ids = Callable[[Path], list[str]]


@pytest.fixture
def chosen(tmp_path: Path, ids_of: Ids, is_whole: Callable[[Manifest], bool]) -> Callable[..., list[str]]:
    """Select, check the tally, and give the ids."""
    numbers = itertools.count()

    def run(store: Store, **options: Any) -> list[str]:
        goal = tmp_path / f"chosen-{next(numbers)}"
        manifest, _ = select(store.path, goal, **options)
        assert is_whole(manifest)
        return ids_of(goal)

    return run


@pytest.fixture
def seeds(attempts: Attempts) -> Store:
    """Three worlds with three attempts each: never solved, sometimes, always."""
    scores = {0: (0.0, 0.0, 0.0), 1: (0.0, 0.8, 0.9), 2: (1.0, 1.0, 1.0)}
    return attempts(
        [
            attempt(
                f"s{seed}-{number}",
                seed=seed,
                task="open" if seed == 2 else "goto",
                score=score,
                n_steps=3 - number,
                variant="old" if number == 0 else "new",
                tags={"number": str(number)},
                outcome="success" if score else "failure",
            )
            for seed, of_seed in scores.items()
            for number, score in enumerate(of_seed)
        ]
    )


def test_the_best_attempt_of_every_seed_that_is_neither_trivial_nor_hopeless(
    seeds: Store, chosen: Callable[..., list[str]]
) -> None:
    assert chosen(seeds, where="0 < avg < 1 and rank == 1") == ["s1-2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    daily(
        [
            ({"where": "episode_return >= 0.7 and n_steps < 2"}, ["s1-2", "s2-2"]),
            ({"where": ["task = 'goto'", "tags.number = '0'"]}, ["s0-0", "s1-0"]),
            ({"where": "tags->>'number' = '1' and seed::text like '1%'"}, ["s1-1"]),
            ({"where": "pass@2 = 1 and n_success = 2"}, ["s1-0", "s1-1", "s1-2"]),
            ({"where": "best > worst and rank = n"}, ["s1-0"]),
            ({"top": 1}, ["s0-2", "s1-2", "s2-2"]),
            ({"top": "34%", "by": ["task"]}, ["s1-1", "s1-2", "s2-1", "s2-2", "s0-2"]),
            ({"top": "20%", "by": ["env_id"]}, ["s2-1", "s2-2"]),
            ({"top": 1, "by": ["variant", "task"], "where": "seed > 0"}, ["s1-0", "s1-2", "s2-0", "s2-2"]),
            ({"best_of": 3}, ["s0-2", "s1-2", "s2-2"]),
            ({"shortest": True, "where": "outcome = 'success'"}, ["s1-2", "s2-2"]),
            ({"shortest": True, "by": ["tags.number"]}, ["s2-0", "s2-1", "s2-2"]),
            ({"top": 1, "score": "total_reward"}, None),
        ],
        8,
    ),
)
def test_each_way_to_choose(
    seeds: Store, chosen: Callable[..., list[str]], options: dict[str, Any], expected: list[str] | None
) -> None:
    if expected is None:
        with pytest.raises(QueryError, match="neither a metric"):
            chosen(seeds, **options)
    else:
        assert chosen(seeds, **options) == sorted(expected)


@pytest.mark.full
def test_draws_keep_their_number_and_follow_the_seed(seeds: Store, chosen: Callable[..., list[str]]) -> None:
    tasks = {episode.episode_id: episode.task for episode in open_dataset(seeds.path)}
    capped = chosen(seeds, max_per_task=2, seed=3)
    assert Counter(tasks[name] for name in capped) == {"goto": 2, "open": 2}
    even = chosen(seeds, balance=["task", "variant"], seed=3)
    assert len(even) == 4
    assert Counter((tasks[name], name.endswith("0")) for name in even) == Counter(
        itertools.product(("goto", "open"), (True, False))
    )
    samples = {tuple(chosen(seeds, sample=4, seed=seed)) for seed in range(4)}
    assert {len(sample) for sample in samples} == {4}
    assert len(samples) > 1
    # a smaller sample is part of a larger one
    assert set(chosen(seeds, sample=3, seed=1)) < set(chosen(seeds, sample=5, seed=1))


@pytest.mark.full
def test_every_episode_is_drawn_equally_often() -> None:
    first: Counter[str] = Counter()
    with connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'e' || i AS episode_id FROM range(8) AS r(i)")
        for seed in range(800):
            (name,) = (
                connection.execute(f"SELECT episode_id FROM t ORDER BY {drawn('x', seed)}").fetchone() or ()
            )
            first[name] += 1
    # 100 each; the standard deviation is sqrt(800 * 1/8 * 7/8) = 9.4
    assert len(first) == 8
    assert all(60 <= times <= 140 for times in first.values())


@pytest.mark.full
def test_the_best_of_n_is_the_best_of_those_drawn(attempts: Attempts, chosen: Any) -> None:
    store = attempts([attempt(f"e{number}", score=number / 10, n_steps=1) for number in range(10)])
    of_one = [chosen(store, best_of=1, seed=seed)[0] for seed in range(4)]
    assert len(set(of_one)) > 2
    for seed in range(2):
        bests = [of_one[seed], *(chosen(store, best_of=n, seed=seed)[0] for n in (3, 10))]
        assert bests == sorted(bests)
        assert bests[-1] == "e9"


def test_what_was_done_is_in_the_lineage(seeds: Store, tmp_path: Path) -> None:
    manifest, entry = select(seeds.path, tmp_path / "out", where="n_steps < 3", top="50%", sample=2, seed=5)
    assert manifest.lineage == (*seeds.manifest.lineage, entry)
    assert entry.arguments == {
        "where": ["n_steps < 3"],
        "top": "50%",
        "sample": 2,
        "seed": 5,
        "score": "episode_return",
        "result": {"group": "environment, task and seed; else the initial state; else the episode"},
    }
    assert [(left.reason, left.n_episodes, left.n_steps) for left in entry.left] == [
        ("not (n_steps < 3)", 3, 9),
        ("not in the top 50% of its group", 3, 6),
        ("not in the sample of 2", 1, 1),
    ]


_attempt = st.tuples(
    st.sampled_from(["goto", "open", None]),
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    st.integers(0, 3),
    st.sampled_from(["success", "failure", "unknown"]),
    st.sampled_from(["old", "new"]),
)
_options = st.fixed_dictionaries(
    {},
    optional={
        "where": st.sampled_from(
            ["0 < avg < 1", "rank <= 2 and n > 1", "pass@1 > 0.3", "seed is not null", "n_steps > 0"]
        ),
        "best_of": st.integers(1, 3),
        "top": st.sampled_from(["1", "2", "50%", "10%"]),
        "shortest": st.booleans(),
        "max_per_task": st.integers(1, 3),
        "balance": st.sampled_from([["task"], ["variant"], ["outcome", "task"]]),
        "sample": st.integers(1, 2),
        "by": st.sampled_from([["task"], ["outcome", "seed"], []]),
        "seed": st.integers(0, 3),
    },
)


@portions(3)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_attempt, min_size=1, max_size=10), options=_options, data=st.data())
def test_a_selection_is_a_subset_that_adds_up_and_no_layout_and_no_thread_changes_it(
    portion: int,
    rows: list[Any],
    options: dict[str, Any],
    data: st.DataObject,
    attempts: Attempts,
    ids_of: Ids,
    is_whole: Callable[[Manifest], bool],
) -> None:
    episodes = [
        attempt(f"e{i:02}", task=task, seed=seed, score=score, n_steps=n, outcome=outcome, variant=variant)
        for i, (task, seed, score, n, outcome, variant) in enumerate(rows)
    ]
    episodes.append(attempt("scored", score=0.5))
    places = data.draw(st.permutations(range(len(episodes))))
    cut = data.draw(st.integers(0, len(episodes)))
    parts = [part for part in (places[:cut], places[cut:]) if part]
    outcomes: list[Any] = []
    for store, threads in ((attempts(episodes), 1), (attempts(episodes, parts), 3)):
        goal = store.path.with_name(f"{store.path.name}-chosen")
        try:
            manifest, entry = select(store.path, goal, **options, threads=threads)
        except (NothingMatched, RequestError) as error:
            outcomes.append((type(error), error.message.replace(str(store.path), "")))
            continue
        assert is_whole(manifest)
        assert set(ids_of(goal)) <= {episode.episode_id for episode in episodes}
        before, after = (hashes(path) for path in (store.path, goal))
        assert after.items() <= before.items()  # what stays is unchanged
        outcomes.append((manifest.digest, entry.left, entry.arguments))
    assert outcomes[0] == outcomes[1]


def hashes(path: Path) -> dict[str, str]:
    rows = open_dataset(path).arrow().read_all().select(["episode_id", "content_hash"]).to_pylist()
    return {row["episode_id"]: row["content_hash"] for row in rows}


def test_episodes_without_the_column_of_a_group_are_groups_of_their_own_and_counted(
    attempts: Attempts,
) -> None:
    store = attempts(
        [attempt("a", tags={"who": "x"}), attempt("b", tags={"who": "x"}), attempt("c"), attempt("d")]
    )
    _, entry = select(store.path, None, by=["tags.who"], top=1)
    assert (entry.n_episodes_out, entry.result["n_ungrouped"]) == (3, 2)


def test_a_store_without_seeds_groups_by_state_else_each_episode_alone(attempts: Attempts) -> None:
    states = {"a": "s1", "b": "s1", "c": None, "d": None}
    store = attempts([attempt(name, seed=None, initial_state_hash=state) for name, state in states.items()])
    _, entry = select(store.path, None, top=1)
    assert entry.n_episodes_out == 3


def test_an_unmeasured_score_is_never_best(attempts: Attempts, chosen: Any) -> None:
    store = attempts([attempt("a", score=None), attempt("b", score=0.1), attempt("c", seed=2, score=None)])
    assert chosen(store, top=5) == ["b"]
    _, entry = select(store.path, None, best_of=2)
    assert entry.left[0].reason == "episode_return was not measured"
    assert entry.left[0].n_episodes == 2


@pytest.mark.full
def test_equal_scores_are_told_apart_by_length_and_id(attempts: Attempts, chosen: Any) -> None:
    store = attempts([attempt("b"), attempt("a"), attempt("c", n_steps=1), attempt("d", n_steps=3)])
    assert chosen(store, top=2) == ["a", "c"]
    assert chosen(store, where="rank = 4") == ["d"]


def test_what_cannot_be_done_is_told_and_leaves_nothing(seeds: Store, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"where": "rnak = 1"}, QueryError, "no column 'rnak'"),
        ({"where": "cast(task as integer) > 1"}, QueryError, "Could not convert string 'goto'"),
        ({"where": "tags.nobody = 'x'"}, QueryError, "no column 'tags.nobody'"),
        ({"by": ["sede"]}, QueryError, "no column 'sede'"),
        ({"by": ["tags.nobody"], "top": 1}, QueryError, "has the tag 'nobody'"),
        ({"score": "nothing", "top": 1}, QueryError, "no metric 'nothing'"),
        ({"top": "0"}, RequestError, "top '0' is neither"),
        ({"top": "120%"}, RequestError, "top '120%' is neither"),
        ({"top": "1.5"}, RequestError, "top '1.5' is neither"),
        ({"sample": 0}, RequestError, "sample is 0"),
        ({"sample": 10}, RequestError, "only 9 episodes are left"),
        ({"balance": ["colour"]}, QueryError, "no column 'colour'"),
        ({"where": "n_steps > 100"}, NothingMatched, "select leaves no episode"),
        ({"where": "null"}, NothingMatched, "select leaves no episode"),
    ]
    for options, error, said in cases:
        with pytest.raises(error, match=said):
            select(seeds.path, tmp_path / "out", **options)
    assert list(tmp_path.glob("*out*")) == []


def test_a_share_is_exact_and_rounded_up() -> None:
    assert parse_share("20%") == Share("20%", 1, 5)
    assert parse_share("33.3%") == Share("33.3%", 333, 1000)
    assert parse_share(" 50 ") == Share("50", 50)
    # 20% of 5 is 1, although 0.2 * 5 in binary may not be
    assert [eval(parse_share("20%").limit(str(n))) for n in (1, 5, 6, 10, 11)] == [1, 1, 2, 2, 3]


@pytest.mark.full
def test_the_control_is_random_and_as_large_as_the_selection(
    attempts: Attempts, ids_of: Ids, tmp_path: Path
) -> None:
    store = attempts(
        [
            attempt(f"e{number:02}", score=number / 40, n_steps=number % 4 + 1, step={"n_output_tokens": 10})
            for number in range(40)
        ]
        + [attempt("eval", purpose="eval", score=0.0, n_steps=1, step={"n_output_tokens": 10})]
    )
    controls = []
    for seed in range(3):
        goal = tmp_path / f"best-{seed}"
        select(store.path, goal, where="episode_return >= 0.7", seed=seed, control=True)
        control = goal.with_name(f"{goal.name}-control")
        entry = open_dataset(control).store.manifest.lineage[-1]
        controls.append(set(ids_of(control)))
        assert entry.verb == "control"
        assert entry.result["of"] == open_dataset(goal).store.manifest.digest
        chosen_amount, drawn_amount = entry.result["n_chosen"], entry.result["n_drawn"]
        assert (entry.result["unit"], chosen_amount) == ("output tokens", 300)
        assert abs(chosen_amount - drawn_amount) <= 20  # half of the longest episode
        assert drawn_amount == 10 * open_dataset(control).n_steps
        assert "eval" not in controls[-1]
        left = {left.reason: left.n_episodes for left in entry.left}
        assert left == {"played for evaluation": 1, "not drawn": 40 - len(controls[-1])}
    assert len(set(map(frozenset, controls))) == 3
    best = set(ids_of(tmp_path / "best-0"))
    assert any(one & best for one in controls)  # the chosen are in the pool
    assert all(one - best for one in controls)


def test_episodes_of_reserved_worlds_leave_a_selection_and_its_control(
    attempts: Attempts, tmp_path: Path, ids_of: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trajkit.toml").write_text(
        '[[reserved]]\nenv = "world"\ntasks = ["goto"]\nseeds = "3:5"\nstates = ["secret"]\n'
    )
    monkeypatch.chdir(tmp_path)
    store = attempts(
        [
            *(attempt(f"e{seed}", seed=seed, task="goto", score=1.0) for seed in range(12)),
            attempt("elsewhere", seed=3, task="open", score=1.0),
            attempt("the-same", seed=90, task="goto", score=1.0, initial_state_hash="secret"),
        ]
    )
    goal = tmp_path / "out"
    _, entry = select(store.path, goal, where="seed <> 0", unreserved=True, control=True)
    assert {each.reason: each.n_episodes for each in entry.left} == {
        "its world is reserved": 3,
        "not (seed <> 0)": 1,
    }
    assert entry.arguments["unreserved"] is True
    allowed = {f"e{seed}" for seed in range(12) if seed not in (3, 4)} | {"elsewhere"}
    assert set(ids_of(goal)) == allowed - {"e0"}
    control = tmp_path / "out-control"
    assert set(ids_of(control)) <= allowed
    left = open_dataset(control).store.manifest.lineage[-1].left
    assert {each.reason: each.n_episodes for each in left} == {"its world is reserved": 3, "not drawn": 1}
    with pytest.raises(DataError, match="leaks: it shares with reserved worlds: 3 episodes") as error:
        leak(store.path).checked()
    assert "`trajkit select --unreserved` leaves them out" in (error.value.hint or "")
    leak(goal).checked()


@pytest.mark.full
def test_without_token_counts_the_control_goes_by_the_length_of_answers(
    attempts: Attempts, tmp_path: Path
) -> None:
    store = attempts([attempt(f"e{number}", score=number / 5) for number in range(6)])
    select(store.path, tmp_path / "out", top=2, control=True)
    entry = open_dataset(tmp_path / "out-control").store.manifest.lineage[-1]
    assert entry.result["unit"] == "characters of answers"
    assert entry.result["n_chosen"] == entry.result["n_drawn"]
    assert entry.n_episodes_out == 2


def test_where_nothing_is_learned_there_is_no_control_and_no_selection(
    attempts: Attempts, tmp_path: Path
) -> None:
    store = attempts([attempt("a", step={"loss_weight": 0.0}), attempt("b", seed=2)])
    with pytest.raises(NothingMatched, match="a control has nothing to match"):
        select(store.path, tmp_path / "out", where="seed = 1", control=True)
    assert list(tmp_path.glob("*out*")) == []


def test_a_control_in_the_way_stops_the_selection_before_it_is_written(seeds: Store, tmp_path: Path) -> None:
    (tmp_path / "out-control").mkdir()
    with pytest.raises(StoreError, match="out-control exists already"):
        select(seeds.path, tmp_path / "out", top=1, control=True)
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_tally_and_remembers_the_store(
    seeds: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    where = "0 < avg < 1 and rank == 1"
    assert main.run(["select", str(seeds.path), "--where", where, "--control", "-o", "best"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed[2:5]] == [
        ["seen", "9", "18"],
        ["left:", "not", *f"({where})".split(), "8", "17"],
        ["kept", "1", "1"],
    ]
    digest = open_dataset("best").store.manifest.digest
    assert printed[5] == f"best  1 episode  1 step  digest {digest[:12]}"
    assert printed[6].startswith("best-control  ")
    assert remembered("last_store") == {"path": str(tmp_path / "best")}
    assert main.run(["select", "--sample", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert LineageEntry.model_validate({k: v for k, v in told.items() if k not in ("store", "digest")}).verb
    assert told["store"].startswith("stores/select-")
    assert told["digest"] == digest


def test_the_command_fails_with_a_line_and_a_hint(
    seeds: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(seeds.path)
    assert main.run(["select", path, "--where", "rnak = 1", "--dry-run"]) == 2
    assert capsys.readouterr().err == (
        f"error: no column 'rnak' in {path} (character 1 of 'rnak = 1')\nhint: nearest: rank\n"
    )
    assert main.run(["select", path, "--where", "n_steps > 99"]) == 1
    assert capsys.readouterr().err == (
        f"error: select leaves no episode of {path}\nhint: left: 9 episodes, 18 steps: not (n_steps > 99)\n"
    )
    assert main.run(["select", path, "--by", "tags.number,task", "--top", "1", "--dry-run"]) == 0
    assert capsys.readouterr().err == "dry run: nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_a_control_that_is_the_selection_itself_is_refused_and_nothing_is_written(
    seeds: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    everything = ["select", str(seeds.path), "--where", "seed >= 0", "--control"]
    for more in (["-o", "all"], ["--dry-run"]):
        assert main.run([*everything, *more]) == 1
        said = capsys.readouterr().err
        assert "the control would be the selection itself, all of its" in said
        assert "without --control" in said
    assert not Path("all").exists()
    assert not Path("all-control").exists()


def test_how_much_a_control_overlaps_with_its_selection_is_said(
    seeds: Store, ids_of: Ids, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = tmp_path / "good"
    assert main.run(["select", str(seeds.path), "--where", "rank = 1", "--control", "-o", str(goal)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    chosen, control = set(ids_of(goal)), set(ids_of(tmp_path / "good-control"))
    noun = "episode" if len(control) == 1 else "episodes"
    assert line.endswith(f", {len(chosen & control)} of {len(control)} {noun} in both")


@pytest.mark.full
@pytest.mark.parametrize("ranked", [("--top", "25%"), ("--best-of", "4"), ("--where", "rank = 1")])
def test_a_rank_among_groups_of_one_says_that_it_leaves_nothing_out(
    attempts: Callable[..., Store], capsys: pytest.CaptureFixture[str], ranked: tuple[str, str]
) -> None:
    store = attempts([attempt(f"ep-{n}", seed=n, score=n / 10) for n in range(6)])
    assert main.run(["select", str(store.path), *ranked, "--dry-run"]) == 0
    assert "every group has one episode" in capsys.readouterr().err
    assert main.run(["select", str(store.path), *ranked, "--by", "task", "--dry-run"]) == 0
    assert "every group has one episode" not in capsys.readouterr().err
