"""Logged episodes: what of a store can be learned, how far the model is from it, and that it is learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.tiny import byte_tokenizer, make_tiny
from trajkit.cli.main import run
from trajkit.errors import DataError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.model import LocalModel
from trajkit.schema import Episode, Outcome, Purpose, Transition
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.writer import write_episodes
from trajkit.training.local.base_model import load_base
from trajkit.training.local.running.worker import work
from trajkit.training.rl.experience import experience_of
from trajkit.training.rl.loss import collate, scored
from trajkit.training.rl.offline import Distance, Logged, distance_of
from trajkit.training.rl.prepare import RlRequest, prepare_rl
from trajkit.training.rl.recipe import RlRecipe, WorldRecipe
from trajkit.training.runs import Runs

RECIPE = RlRecipe(
    lora=None, learning_rate=1e-2, iterations=6, seeds_per_iteration=4, minibatches=2, num_threads=1
)
RECIPES = Path(__file__).parents[3] / "recipes"
HASH = "sha256:mine"
RESERVED = '[[reserved]]\nenv = "letters"\ntasks = ["default"]\nseeds = "1000:1016"\n'


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


def episode(number: int, *, seed: int = 0, total_reward: float | None = None, **fields: Any) -> Episode:
    step: dict[str, Any] = {
        "prompt_token_ids": (1, 2, 3),
        "completion_token_ids": (4, 5),
        "logprobs": (-1.0, -2.0),
        "reward": float(number % 2),
        "terminated": True,
        "extra": {"tokenizer": HASH},
    }
    step |= {name: fields.pop(name) for name in tuple(fields) if name in Transition.model_fields}
    return Episode(
        episode_id=f"e{number}",
        source="test",
        env_id="letters",
        task=fields.pop("task", "default"),
        seed=seed,
        outcome=fields.pop("outcome", Outcome.SUCCESS),
        total_reward=float(number % 2) if total_reward is None else total_reward,
        steps=(Transition(step_index=0, **step),),
        **fields,
    )


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Dataset]:
    def write(*episodes: Episode) -> Dataset:
        write_episodes(tmp_path / "store", episodes, kind="test")
        return open_dataset(tmp_path / "store")

    return write


def test_what_cannot_be_learned_is_counted_by_reason(store: Callable[..., Dataset]) -> None:
    data = store(
        *(episode(number) for number in range(4)),
        episode(4, prompt_token_ids=None),
        episode(5, logprobs=None),
        episode(6, purpose=Purpose.EVAL),
        episode(7, outcome=Outcome.ERROR),
    )
    logged = Logged(data, HASH, RECIPE)
    assert len(logged.traces) == 4
    assert logged.left == {
        "their steps have no token ids": 1,
        "their steps have no log-probabilities": 1,
        "they were played for evaluation": 1,
        "they did not end": 1,
    }
    assert len(Logged(data, HASH, RECIPE.model_copy(update={"algorithm": "awr"})).traces) == 5
    assert (logged.facts.n_rows, logged.facts.n_tokens, logged.facts.n_learned_tokens) == (4, 20, 8)


def test_a_store_without_token_ids_says_what_can_be_done_with_it() -> None:
    with pytest.raises(DataError, match="their steps have no token ids") as caught:
        Logged(open_dataset("sample:babyai"), HASH, RECIPE)
    assert str(caught.value.hint).startswith("`trajkit weight --scheme advantage`, then `trajkit sft local`")


def test_a_store_without_log_probabilities_is_sent_to_an_algorithm_that_needs_none(
    store: Callable[..., Dataset],
) -> None:
    with pytest.raises(DataError, match="their steps have no log-probabilities") as caught:
        Logged(store(episode(0, logprobs=None)), HASH, RECIPE)
    assert str(caught.value.hint).startswith("--algorithm awr needs no log-probabilities; ")


def test_steps_act_where_a_store_has_only_the_return_of_its_episodes(store: Callable[..., Dataset]) -> None:
    unsaid = {"reward": None, "terminated": None}
    data = store(*(episode(number, total_reward=number, **unsaid) for number in range(2)))
    assert [trace.acting for trace in Logged(data, HASH, RECIPE).traces] == [(True,), (True,)]
    with pytest.raises(DataError, match="2: a step has no reward, which ppo needs"):
        Logged(data, HASH, RECIPE.model_copy(update={"algorithm": "ppo"}))


@pytest.mark.parametrize("algorithm", ["reinforce", "grpo"])
def test_reinforce_compares_the_episodes_of_a_task_and_no_others(
    store: Callable[..., Dataset], algorithm: str
) -> None:
    recipe = RECIPE.model_copy(update={"algorithm": algorithm})
    data = store(*(episode(n, seed=n // 2 % 2, task=f"task {n // 4}") for n in range(8)))
    groups = experience_of(Logged(data, HASH, recipe).traces, recipe).attempts.group.tolist()
    assert len(set(groups)) == (2 if algorithm == "reinforce" else 4)


def test_ids_of_another_tokenizer_are_refused(store: Callable[..., Dataset], tmp_path: Path) -> None:
    other = ChatTemplate(byte_tokenizer(tmp_path / "other", special=("<|im_end|>", "<|more|>"))).digest
    with pytest.raises(DataError, match=f"episode e0 are of the tokenizer {HASH}, .* is {other}"):
        Logged(store(episode(0), episode(1)), other, RECIPE)


def test_a_store_of_reserved_worlds_is_refused(
    store: Callable[..., Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trajkit.toml").write_text(RESERVED)
    data = store(*(episode(number, seed=1000 + number // 2) for number in range(4)))
    request = RlRequest(base="sample:tiny-base", recipe=RECIPE, store=Path(str(data.store.path)))
    with pytest.raises(DataError, match="reserved"):
        prepare_rl(request, Runs(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_one_attempt_at_each_seed_cannot_be_compared(store: Callable[..., Dataset]) -> None:
    data = store(episode(0, seed=0), episode(1, seed=1))
    with pytest.raises(DataError, match="one attempt at each seed, and grpo compares attempts"):
        Logged(data, HASH, RECIPE)
    assert len(Logged(data, HASH, RECIPE.model_copy(update={"algorithm": "reinforce"})).traces) == 2


def test_the_distance_is_that_of_the_ratios() -> None:
    near = distance_of([0.0, 0.0, 0.0, 0.0], 8, 10)
    assert near == Distance(4, 1.0, 0.0, 0.0)
    near.check()
    # ratios 1, 1, 1 and 100: (103)^2 / (3 + 10000) / 4
    far = distance_of([0.0, 0.0, 0.0, math.log(100)], 8, 10)
    assert far.effective == pytest.approx(103**2 / 10003 / 4)
    assert far.stale == 0.25
    assert far.kl == pytest.approx(-math.log(100) / 8)
    with pytest.raises(DataError, match=r"effective sample size 1.0%, 0.0% .* are too stale"):
        distance_of([*([-50.0] * 99), 0.0], 200, 1e30).check()


@pytest.mark.parametrize(
    ("recipe", "options"),
    daily(
        [
            ("babyai", "--function act --variant baseline --policy-set json_mode=schema"),
            ("babyai_tools", "--function act --variant tools --policy-set max_new_tokens=32"),
            (None, "--policy-set json_mode=schema --policy-set thinking=true"),
            (None, "--policy-set json_mode=object --policy-set temperature=0.7"),
        ],
        1,
    ),
)
def test_answers_that_a_grammar_held_are_asked_for_under_the_same_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str | None, options: str
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    config = () if recipe is None else ("--config", str(RECIPES / recipe / "tensorzero.toml"))
    played = "rollout babyai --policy local --model sample:tiny-base --task goto --seeds 0:2 --max-steps 4"
    assert run([*played.split(), *options.split(), *config, "--quiet", "-o", "store"]) == 0
    data, template = open_dataset("store"), ChatTemplate("sample:tiny-base")
    temperature = 0.7 if "temperature" in options else 1.0
    how = RECIPE.model_copy(
        update={"algorithm": "reinforce", "play": WorldRecipe(temperature=temperature), "lora": None}
    )
    logged = Logged(data, template.digest, how)
    network = load_base("sample:tiny-base", how).eval()
    lived = logged.lived(0, LocalModel.of(network, template).voice(None))
    rows = [row for trace in lived.traces for row in trace.rows]
    assert len(rows) == data.store.manifest.counts.n_steps
    assert all(row.allowed is not None and len(row.allowed) == len(row.completion) for row in rows)
    batch = collate(rows, padding=0, device="cpu")
    open_batch = {name: value for name, value in batch.items() if name != "allowed"}
    with torch.no_grad():
        apart = (scored(network, batch, temperature=temperature).logps - batch["sampled"]) * batch["mask"]
        free = (scored(network, open_batch, temperature=temperature).logps - batch["sampled"]) * batch["mask"]
    assert float(apart.abs().max()) < 1e-4
    assert float(free.abs().max()) > 1e-3
    distance = logged.distance("sample:tiny-base", template)
    assert distance.effective > 0.999
    assert distance.stale == 0


def test_a_model_learns_from_what_it_once_played(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trajkit.toml").write_text(RESERVED)
    world = WorldRecipe(env="tests.training.rl.worlds:Letters", max_new_tokens=1, history=0)
    runs = Runs(tmp_path / "runs")
    playing = RECIPE.model_copy(
        update={"play": world, "iterations": 1, "seeds_per_iteration": 16, "keep_rollouts": True}
    )
    played = prepare_rl(RlRequest(base=base, recipe=playing), runs, name="played")
    assert work(runs, "played") == 0
    learning = RECIPE.model_copy(update={"play": world, "eval_every": 6})
    request = RlRequest(base=base, recipe=learning, store=runs.path("played") / "rollouts" / "0001")
    learned = prepare_rl(request, runs, name="learned")
    assert learned.distance is not None
    assert learned.distance.effective > 0.999
    assert learned.distance.kl == pytest.approx(0, abs=1e-5)
    assert learned.job.train is not None
    assert learned.job.train.n_rows == 128
    assert work(runs, "learned") == 0
    result: dict[str, Any] = runs.load("learned").result
    assert result["success"] > result["first_success"] + 0.1
    assert played.job.train is None
