"""A model of random weights that learns to say letters by playing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.tiny import make_tiny
from trajkit.errors import RequestError, TrainingError
from trajkit.models.generation.weights import load_base, with_adapter
from trajkit.training.local.base_model import going_on
from trajkit.training.local.recipe import LoraRecipe
from trajkit.training.rl.loss import policy_loss
from trajkit.training.rl.recipe import RlRecipe, WorldRecipe
from trajkit.training.rl.train import RlTrained, train_rl

WORLD = "tests.training.rl.worlds:Letters"
PLAY = WorldRecipe(
    env=WORLD, tasks=("default",), seeds="0:64", eval_seeds="1000:1016", max_new_tokens=1, history=0
)
NOT_MEASURED = PLAY.model_copy(update={"eval_seeds": ""})
RECIPE = RlRecipe(
    play=PLAY,
    lora=None,
    learning_rate=1e-2,
    iterations=2,
    seeds_per_iteration=4,
    minibatches=2,
    eval_every=2,
    num_threads=1,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


class Run:
    """Trains into a folder, and keeps what was told."""

    def __init__(self, base: str, folder: Path) -> None:
        self._base, self._folder = base, folder
        self.events: list[dict[str, Any]] = []
        self.breaks_after: int | None = None

    def __call__(self, recipe: RlRecipe = RECIPE, **changes: Any) -> RlTrained:
        return train_rl(
            self._base,
            self._folder / "model",
            recipe.model_copy(update=changes),
            tokenizer=self._base,
            workspace=self._folder / "checkpoints",
            tell=self._hear,
        )

    def _hear(self, event: dict[str, Any]) -> None:
        self.events.append(json.loads(json.dumps(event)))
        if event["kind"] == "iteration" and event["iteration"] == self.breaks_after:
            raise KeyboardInterrupt

    def told(self, kind: str, field: str) -> list[Any]:
        return [event[field] for event in self.events if event["kind"] == kind]

    @property
    def weights(self) -> dict[str, Any]:
        from safetensors.torch import load_file

        return dict(load_file(next((self._folder / "model").glob("*model.safetensors"))))


@pytest.fixture
def run(base: str, tmp_path: Path) -> Run:
    return Run(base, tmp_path)


def test_success_rises_and_the_best_checkpoint_is_kept(run: Run) -> None:
    trained = run(iterations=10, seeds_per_iteration=8, eval_every=5)
    measured = run.told("evaluation", "success")
    assert measured[0] < 0.4
    assert trained.success == max(measured[1:])
    assert trained.success is not None
    assert trained.success > 0.8
    assert trained.first_success == measured[0]
    assert trained.n_steps == 20
    assert run.told("iteration", "kl")[0] == 0
    assert run.told("iteration", "kl")[-1] > 0.05
    assert max(run.told("iteration", "drift")) < 1e-4  # what is drawn and what is trained are the same


@pytest.mark.full
def test_rewards_that_have_nothing_to_do_with_the_answers_do_not_make_it_better(run: Run) -> None:
    blind = PLAY.model_copy(update={"env_settings": {"is_blind": "true"}, "eval_seeds": "1000:1064"})
    run(play=blind, iterations=14, seeds_per_iteration=8, eval_every=7)
    measured = run.told("evaluation", "success")
    assert max(measured) < measured[0] + 0.25


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ppo", "awr", "gigpo", "rloo", "reinforce"])
def test_every_algorithm_learns(run: Run, algorithm: str) -> None:
    trained = run(algorithm=algorithm, iterations=8, seeds_per_iteration=8, eval_every=8)
    assert trained.success is not None
    assert trained.success > run.told("evaluation", "success")[0] + 0.1


@pytest.mark.parametrize("iterations", daily([1, 8], 1))
def test_the_calls_of_an_agent_of_ones_own_are_learned(run: Run, iterations: int) -> None:
    agent = {"policy": "tests.training.rl.worlds:talk", "env_settings": {"n_steps": "2"}}
    trained = run(
        play=PLAY.model_copy(update=agent),
        algorithm="ppo",
        iterations=iterations,
        seeds_per_iteration=8,
        eval_every=iterations,
    )
    assert trained.success is not None
    if iterations > 1:
        assert trained.success > run.told("evaluation", "success")[0] + 0.1
    assert run.told("iteration", "n_learned") == [2 * 8 * 8] * iterations
    assert max(run.told("iteration", "drift")) < 1e-4


@pytest.mark.parametrize(("algorithm", "lora"), daily([("ppo", LoraRecipe(r=4)), ("grpo", None)], 1))
def test_a_run_that_was_broken_off_goes_on_to_the_same_weights(
    base: str, tmp_path: Path, algorithm: str, lora: LoraRecipe | None
) -> None:
    import torch

    changed = {"iterations": 3, "play": NOT_MEASURED, "algorithm": algorithm, "lora": lora}
    recipe = RECIPE.model_copy(update=changed)
    whole, broken = Run(base, tmp_path / "whole"), Run(base, tmp_path / "broken")
    whole(recipe)
    broken.breaks_after = 2  # its last step of the optimizer is lost: the iteration is played again
    with pytest.raises(KeyboardInterrupt):
        broken(recipe)
    broken.breaks_after = None
    broken(recipe)
    assert broken.told("iteration", "iteration") == [1, 2, 2, 3]
    assert broken.told("iteration", "loss")[1] == broken.told("iteration", "loss")[2]
    assert whole.weights.keys() == broken.weights.keys()
    assert all(torch.equal(each, broken.weights[name]) for name, each in whole.weights.items())


@pytest.mark.full
@pytest.mark.parametrize("use_dora", daily([False, True], 1))
def test_an_adapter_is_trained_further_and_compared_with_itself(
    base: str, tmp_path: Path, use_dora: bool
) -> None:
    import torch

    before, after = Run(base, tmp_path / "before"), Run(base, tmp_path / "after")
    before(lora=LoraRecipe(r=4, use_dora=use_dora))
    fields = going_on({"lora": {"r": 4}}, str(tmp_path / "before" / "model"))
    lora = LoraRecipe.model_validate(fields["lora"])
    assert (lora.r, lora.use_dora, lora.adapter) == (4, use_dora, str(tmp_path / "before" / "model"))
    trained = after(lora=lora, beta=0.1)
    assert trained.first_success == before.told("evaluation", "success")[-1]
    assert after.told("iteration", "kl")[0] == 0  # though it is far from the base model
    assert after.told("iteration", "kl")[-1] > 0
    assert max(after.told("iteration", "drift")) < 1e-4
    assert before.weights.keys() == after.weights.keys()
    assert {path.name for path in (tmp_path / "after" / "model").iterdir() if path.is_dir()} == set()
    alone = with_adapter(load_base(base, "cpu"), str(tmp_path / "after" / "model"), "default", said="after")
    moved = [
        not torch.equal(each, before.weights[name.replace(".default", "")])
        for name, each in alone.named_parameters()
        if "lora_B" in name
    ]
    assert any(moved)


@pytest.mark.parametrize(
    ("lora", "words"),
    [({"r": 8}, "has r=4, not 8"), (None, "is an adapter, and lora=null trains all weights")],
)
def test_an_adapter_keeps_its_settings(tmp_path: Path, lora: Any, words: str) -> None:
    about = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(about))
    with pytest.raises(RequestError, match=words) as caught:
        going_on({"lora": lora}, str(tmp_path))
    assert "--merge" in str(caught.value.hint)
    (tmp_path / "pattern").mkdir()
    (tmp_path / "pattern" / "adapter_config.json").write_text(
        json.dumps({**about, "target_modules": ".*proj"})
    )
    with pytest.raises(RequestError, match="pattern cannot be trained further: target_modules"):
        going_on({}, str(tmp_path / "pattern"))
    assert going_on({}, str(tmp_path))["lora"] == {
        **LoraRecipe(r=4, lora_alpha=8, target_modules=("q_proj", "v_proj")).model_dump(),
        "adapter": str(tmp_path),
    }


@pytest.mark.full
def test_a_batch_of_another_size_computes_the_same(base: str, tmp_path: Path) -> None:
    import torch

    whole, cut = Run(base, tmp_path / "whole"), Run(base, tmp_path / "cut")
    whole(play=NOT_MEASURED)
    cut(play=NOT_MEASURED, per_device_train_batch_size=5)
    assert all(torch.allclose(each, cut.weights[name], atol=1e-4) for name, each in whole.weights.items())
    shares = whole.told("iteration", "clip_share")
    assert shares == pytest.approx(cut.told("iteration", "clip_share"), abs=1e-3)
    assert max(shares) > 0


@pytest.mark.parametrize("minibatches", daily([2, 1], 1))
def test_a_model_that_moves_too_far_is_stopped_and_the_one_before_is_kept(run: Run, minibatches: int) -> None:
    trained = run(iterations=8, learning_rate=3e-2, max_kl=0.05, eval_every=8, minibatches=minibatches)
    kls = run.told("iteration", "kl")
    assert max(kls) <= 0.05
    assert trained.stopped is not None
    assert trained.stopped.endswith("above 0.05")
    assert trained.was_stopped_early
    assert trained.best_iteration == len(kls) - 1
    assert trained.n_iterations == len(kls)


def test_a_loss_that_is_no_number_ends_the_training_and_names_the_step(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    n_called = 0

    def broken(*given: Any, **options: Any) -> Any:
        nonlocal n_called
        n_called += 1
        loss = policy_loss(*given, **options)
        return loss._replace(total=loss.total * torch.nan) if n_called == 4 else loss

    monkeypatch.setattr("trajkit.training.rl.train.policy_loss", broken)
    with pytest.raises(TrainingError, match=r"the loss is nan in step 2 of iteration 2: .*checkpoints"):
        run(play=NOT_MEASURED)


@pytest.mark.full
def test_attempts_that_all_do_equally_well_teach_nothing(run: Run) -> None:
    kind = PLAY.model_copy(update={"env_settings": {"is_kind": "true"}, "eval_seeds": ""})
    with pytest.raises(TrainingError, match=r"in 5 iterations up to 5, all attempts .* same return \(1\)"):
        run(play=kind, iterations=9)
    assert run.told("iteration", "n_learned") == [0, 0, 0, 0]


def test_what_is_not_deterministic_is_counted_and_worlds_of_held_out_seeds_are_not_learned(run: Run) -> None:
    fickle = PLAY.model_copy(update={"env_settings": {"is_fickle": "true", "n_steps": "2"}, "eval_seeds": ""})
    train_rl(
        run._base,
        run._folder / "model",
        RECIPE.model_copy(update={"iterations": 1, "play": fickle}),
        tokenizer=run._base,
        workspace=run._folder / "checkpoints",
        held_out=frozenset({"state 0", "state 2"}),
        tell=run._hear,
    )
    assert run.told("iteration", "left") == [{"their world is one of the held-out seeds": 16}]
    assert run.told("iteration", "n_learned")[0] <= 2 * 16
    assert run.told("iteration", "n_strange") == [2]
    assert "in 2 of 4 groups the environment is not deterministic" in run.told("message", "message")[-1]
