"""The environments as other libraries play them: the same seed and actions give the same rewards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

from trajkit.curation.rows.file import convert
from trajkit.environments import make
from trajkit.environments.adapters import gymnasium_env, trl_factory, trl_rows
from trajkit.environments.base import HasExpert
from trajkit.environments.gym import GymnasiumText
from trajkit.errors import RequestError, RolloutError
from trajkit.schema import Episode
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "guess_number.py"


class Played(NamedTuple):
    task: str
    seed: int
    actions: list[str]
    rewards: list[float]


@pytest.fixture
def guess(folder: Path) -> str:
    """The example of the documentation, whose legal actions are no fixed rule."""
    (folder / "adapted_guess.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    return "adapted_guess:GuessNumber"


def played(env_id: str, task: str, seed: int) -> Played:
    """An episode of the expert, with an answer that is no action before it."""
    environment = make(env_id, task)
    environment.reset(seed)
    actions, rewards, is_over = [], [], False
    while not is_over:
        assert isinstance(environment, HasExpert)
        actions.append(environment.expert_action() if actions else "dance")
        result = environment.step(actions[-1])
        rewards.append(result.reward)
        is_over = result.terminated or result.truncated
    environment.close()
    assert sum(rewards) > 0
    return Played(task, seed, actions, rewards)


def episodes(guess: str) -> Iterator[tuple[str, Played]]:
    for seed in (3, 4):
        yield "babyai", played("babyai", "goto", seed)
        yield guess, played(guess, "easy", seed)


def test_gymnasium_plays_the_same_worlds(guess: str) -> None:
    for env_id, one in episodes(guess):
        env = gymnasium_env(env_id, one.task)
        _, info = env.reset(seed=one.seed)
        assert info["mission"]
        assert info["initial_state_hash"]
        steps = [env.step(action) for action in one.actions]
        assert [reward for _, reward, *_ in steps] == one.rewards
        assert [terminated or truncated for _, _, terminated, truncated, _ in steps][-2:] == [False, True]
        assert [info["action_valid"] for *_, info in steps][:2] == [False, True]
        with pytest.raises(RolloutError, match="the episode is over"):
            env.step("go forward")
        env.close()


def test_gymnasium_accepts_the_environment_and_its_wrappers() -> None:
    check_env(gymnasium_env("babyai", "goto"), skip_render_check=True)
    env = TimeLimit(gymnasium_env("babyai", "goto"), 2)
    env.reset()
    drawn = env.unwrapped.world
    assert env.action_space.sample() in env.unwrapped.legal_actions()
    assert [env.step("turn left")[3] for _ in range(2)] == [False, True]
    seen, _ = env.reset()
    assert env.unwrapped.world != drawn
    assert env.render() == seen == env.reset(seed=env.unwrapped.world)[0]


def test_the_way_out_and_in_again_is_the_same_environment() -> None:
    there = played("babyai", "goto", 3)
    back = GymnasiumText(gymnasium_env("babyai", "goto"))
    start = make("babyai", "goto").reset(3)
    again = back.reset(3)
    assert (again.mission, again.observation, again.initial_state_hash) == start[:3]
    assert [back.step(action).reward for action in there.actions] == there.rewards
    assert back.statistics()["progression"] == 1


def test_the_recipe_plays_random_episodes() -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "environments" / "gymnasium_random.py"
    done = subprocess.run([sys.executable, recipe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "seed 0: go to the green key: return 0.000" in done.stdout


def test_an_unknown_task_is_told(guess: str) -> None:
    with pytest.raises(RequestError, match="no task 'hardest'"):
        gymnasium_env(guess, "hardest")
    with pytest.raises(RequestError, match="no task 'hardest'"):
        trl_rows(guess, [1], tasks=["hardest"])
    with pytest.raises(RequestError, match="a row of the dataset has no seed"):
        trl_factory(guess)().reset(prompt=[])
    (row,) = trl_rows("babyai", [1], tasks=["goto"])
    with pytest.raises(RequestError, match="environment babyai, not adapted_guess:GuessNumber"):
        trl_factory(guess)().reset(**row)


def test_a_tool_of_trl_says_what_the_environment_says(guess: str) -> None:
    from transformers.utils import get_json_schema

    tool = trl_factory(guess, {"top": "3"})()
    assert tool.reset(task="easy", seed=1).endswith("What is your first guess?\n\nValid actions: 1, 2, 3")
    answers = [tool.act(action) for action in ("1", "2", "3")]
    assert "The episode is over." in answers[-1]
    assert tool.get_reward() == 1
    assert tool.act("1") == "The episode is over."
    assert tool.get_reward() == 1
    schema = get_json_schema(trl_factory("babyai")().act)["function"]["parameters"]
    assert schema["properties"]["action"]["enum"] == list(make("babyai", "goto").legal_actions())
    assert get_json_schema(tool.act)["function"]["parameters"]["properties"]["action"]["type"] == "string"


@pytest.fixture
def trainer_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Played], Any]:
    """Make TRL's trainer on a converted store, whose model says what a script says; all else is TRL's own."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = Path(__file__).parents[2] / "data" / "tiny-base"
    tokenizer = AutoTokenizer.from_pretrained(base)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")

    def make_trainer(one: Played) -> Any:
        turns = [
            f"<tool_call>\n{json.dumps({'name': 'act', 'arguments': {'action': action}})}\n</tool_call>"
            for action in one.actions
        ]
        said = iter([*turns, "Done."])
        logged = {"source": "test", "env_id": "babyai", "task": one.task, "seed": one.seed}
        episodes = [Episode.model_validate({"episode_id": name, "steps": [], **logged}) for name in "ab"]
        write_episodes(tmp_path / "store", episodes, kind="test")
        rows = convert(open_dataset(tmp_path / "store"), tmp_path / "starts.jsonl", to="trl-grpo")

        class Scripted(trl.GRPOTrainer):  # type: ignore[misc]
            def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
                ids = tokenizer(f"{next(said)}<|im_end|>", add_special_tokens=False)["input_ids"]
                return [ids for _ in prompt_ids], None

        return Scripted(
            model=AutoModelForCausalLM.from_pretrained(base),
            processing_class=tokenizer,
            train_dataset=load_dataset(
                "json", data_files=str(rows.path), split="train", cache_dir=str(tmp_path / "cache")
            ),
            environment_factory=trl_factory("babyai"),
            args=trl.GRPOConfig(
                output_dir=str(tmp_path),
                per_device_train_batch_size=2,
                num_generations=2,
                max_steps=1,
                max_completion_length=3000,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            ),
        )

    return make_trainer


# what transformers renames, TRL still calls by the old name
@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*deprecated and will be removed in v6:FutureWarning")
def test_a_trainer_of_trl_plays_the_same_world_from_a_converted_store(
    trainer_of: Callable[[Played], Any],
) -> None:
    one = played("babyai", "goto", 3)
    trainer = trainer_of(one)
    assert list(trainer.train_dataset) == trl_rows("babyai", [one.seed], tasks=[one.task])
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["rewards/babyai/mean"] == pytest.approx(sum(one.rewards))
    assert log["tools/call_frequency"] == len(one.actions)
    assert log["tools/failure_frequency"] == 0
    assert [environment.get_reward() for environment in trainer.environments] == [sum(one.rewards)] * 2
