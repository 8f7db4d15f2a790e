"""Models of this machine play BabyAI in lock step, with a gateway's prompts and with trajkit's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from trajkit._core.samples import model_path
from trajkit.errors import ConfigError, RequestError
from trajkit.models.generation.ask import Said
from trajkit.models.generation.located import fingerprint
from trajkit.models.generation.model import LocalModel
from trajkit.rollouts.local import policy as local_policy
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.options import Options
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.session import open_run, prepare
from trajkit.schema import Episode, ToolCallBlock
from trajkit.store.dataset import open_dataset

CONFIG = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"
BASE = "sample:tiny-base"
ACTIONS = {"turn left", "turn right", "go forward", "pick up", "drop", "toggle"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def options(**changes: Any) -> Options:
    values = {
        "env_id": "babyai",
        "tasks": ("goto",),
        "policy": "local",
        "model": BASE,
        "config_file": CONFIG,
        "variants": ("baseline",),
        "seeds": "0:3",
        "max_steps": 4,
        "new_run": True,
        "store": Path("store"),
    }
    return Options.model_validate(values | changes)


def played(asked: Options) -> list[Episode]:
    """The episodes of the store that it leaves, by policy and seed."""
    made: list[Played] = []
    with open_run(prepare(asked)) as run:
        run.play(on_played=made.append)
        run.write()
    assert [one.fault for one in made] == [None] * len(made)
    assert asked.store is not None
    found = list(open_dataset(asked.store))
    return sorted(found, key=lambda one: (str(one.origin["policy"]), one.seed))


def walks(episodes: list[Episode]) -> list[list[str | None]]:
    return [[step.completion and step.completion.text for step in one.steps] for one in episodes]


def test_steps_hold_prompt_answer_tokens_and_names_as_an_export_does() -> None:
    episodes = played(options())
    steps = [step for one in episodes for step in one.steps]
    prompts = [prompt for one in episodes for prompt in one.prompts()]
    assert [one.seed for one in episodes] == list(range(3))
    for step, prompt in zip(steps, prompts, strict=True):
        assert (step.function_name, step.variant_name, step.model_name) == ("act", "baseline", BASE)
        assert prompt is not None
        system, user = (message.text for message in prompt)
        assert "Your mission: go to" in system
        assert user.startswith(f"Observation:\n{step.observation}\n\nAnswer with one JSON object")
        assert step.completion is not None
        assert step.n_input_tokens is not None
        assert step.n_input_tokens > step.n_output_tokens > 0  # type: ignore[operator]
        assert step.finish_reason in ("stop", "length")
        if step.finish_reason == "stop":  # the variant is strict: what ended by itself fits the schema
            said = json.loads(step.completion.text)
            assert set(said) == {"thinking", "action"}
            assert said["action"] == step.action
            assert step.action_valid == (step.action in ACTIONS)


def test_a_store_has_the_tokens_as_sampled_and_their_log_probabilities() -> None:
    import torch
    import transformers

    episodes = played(options(policy_settings={"json_mode": "off", "temperature": "0.8"}, seeds="0:2"))
    plain = transformers.AutoModelForCausalLM.from_pretrained(model_path(BASE)).eval()
    for step in [step for one in episodes for step in one.steps]:
        prompt, answer = step.prompt_token_ids, step.completion_token_ids
        assert prompt
        assert answer
        assert (len(prompt), len(answer)) == (step.n_input_tokens, step.n_output_tokens)
        with torch.no_grad():
            logits = plain(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / 0.8).log_softmax(-1)[range(len(answer)), list(answer)]
        assert step.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        assert step.model_version == fingerprint(BASE)
        assert step.extra is not None
        assert step.extra["sampling"] == {
            "temperature": 0.8,
            "top_p": 1.0,
            "max_new_tokens": 128,
            "seed": step.extra["sampling"]["seed"],  # type: ignore[index,call-overload]
            "is_masked": False,
        }
        assert str(step.extra["tokenizer"]).startswith("sha256:")


def test_the_same_run_seed_plays_the_same_and_another_one_does_not() -> None:
    first = walks(played(options()))
    assert walks(played(options(store=Path("again")))) == first
    assert walks(played(options(store=Path("alone"), concurrency=1))) == first  # whatever plays beside it
    assert walks(played(options(store=Path("other"), run_seed=1))) != first


def test_trajkits_own_prompt_needs_no_configuration() -> None:
    settings = {"temperature": "0", "max_new_tokens": "24"}
    prices = {"input_price": 0.4, "output_price": 1.6}
    for one in played(options(config_file=None, variants=(), policy_settings=settings, **prices)):
        for step, prompt in zip(one.steps, one.prompts(), strict=True):
            assert (step.function_name, step.variant_name) == (None, BASE)
            assert prompt is not None
            assert "The actions:\n- turn left" in prompt[0].text
            usd = (0.4 * (step.n_input_tokens or 0) + 1.6 * (step.n_output_tokens or 0)) / 1e6
            assert step.cost_usd == pytest.approx(usd)
            assert usd > 0
            if step.finish_reason == "stop":
                assert step.action in ACTIONS  # the schema lists them


def test_any_text_is_an_answer_where_nothing_holds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answers(model: LocalModel, asks: Any) -> list[Said]:
        asked.extend(asks)
        return [Said("fly to the moon", (), (1,), None, 3, 1, "stop") for _ in asks]

    monkeypatch.setattr(local_policy, "generate", answers)
    episodes = played(options(policy_settings={"json_mode": "off"}))
    assert {ask.json_schema for ask in asked} == {None}
    assert {step.action for one in episodes for step in one.steps} == {None}
    assert not any(step.action_valid for one in episodes for step in one.steps)


@pytest.mark.full
def test_several_models_and_prompts_play_side_by_side() -> None:
    common = {"model": BASE, "config": str(CONFIG), "function": "act"}
    players = (
        LocalPlayer(name="plain", variant="baseline", settings={"temperature": "0"}, **common),
        LocalPlayer(name="with history", variant="history", called="tiny", **common),
    )
    asked = options(model=None, config_file=None, variants=(), players=players, seeds="0:2")
    episodes = played(asked)
    assert [(one.origin["policy"], one.seed) for one in episodes] == [
        ("plain", 0),
        ("plain", 1),
        ("with history", 0),
        ("with history", 1),
    ]
    steps = {str(one.origin["policy"]): one.steps[-1] for one in episodes}
    assert {name: step.variant_name for name, step in steps.items()} == {name: name for name in steps}
    assert {name: step.model_name for name, step in steps.items()} == {"plain": BASE, "with history": "tiny"}
    extra = {name: step.extra or {} for name, step in steps.items()}
    assert extra["plain"]["sampling"]["temperature"] == 0  # type: ignore[index,call-overload]
    assert extra["with history"]["prompt_variant"] == "history"


def test_a_plan_can_fix_how_answers_are_drawn() -> None:
    episodes = played(options(decodings=("greedy", "temperature=1"), seeds="0:2"))
    drawn = {
        (one.tags["trajkit.decoding"], step.extra["sampling"]["temperature"])  # type: ignore[index,call-overload]
        for one in episodes
        for step in one.steps
    }
    assert drawn == {("greedy", 0), ("temperature=1", 1)}


def test_a_prompt_that_does_not_fit_ends_its_episode_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    session = prepare(options(store=None, seeds="0:6"))
    ends: list[Played] = []
    real = LocalModel.open

    def small(*given: Any, **named: Any) -> LocalModel:
        model = real(*given, **named)
        model.voice(None).room = 1
        return model

    monkeypatch.setattr(LocalModel, "open", small)
    with open_run(session) as run, pytest.raises(Exception, match="takes 1 with the answer"):
        run.play(on_played=ends.append)
    assert ends
    assert {one.fault.kind for one in ends if one.fault} == {"refused"}


def test_a_function_with_a_tool_is_played_by_calling_it() -> None:
    tools = CONFIG.parents[1] / "babyai_tools" / "tensorzero.toml"
    n_called = 0
    for one in played(options(config_file=tools, variants=("tools",))):
        for step, prompt in zip(one.steps, one.prompts(), strict=True):
            assert prompt is not None
            assert [tool["name"] for tool in step.tools or ()] == ["move"]
            assert step.completion is not None
            calls = [block for block in step.completion.content if isinstance(block, ToolCallBlock)]
            if step.finish_reason == "tool_calls":  # the tool is required, and its schema lists the actions
                assert {call.name for call in calls} == {"move"}
                assert json.loads(calls[0].arguments) == {"action": step.action}
                assert step.action in ACTIONS
                n_called += 1
    assert n_called > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "no model is given"),
        ({"variants": ("nearly",)}, "no variant 'nearly' in the function 'act'"),
        ({"variants": ()}, "no variant of 'act' is named"),
        ({"function": "fly"}, "no function 'fly'"),
        ({"config_file": None}, "there is no configuration"),
        ({"model_url": "http://127.0.0.1:1/v1"}, "does not use --model-url"),
        ({"policy_settings": {"heat": "1"}}, "the policy local has no setting 'heat'"),
        ({"policy_settings": {"top_p": "2"}}, "top_p='2'"),
        ({"policy_settings": {"thinking": "true"}}, "for prompts that trajkit writes"),
        ({"model": "sample:huge"}, "no sample model 'huge'"),
    ],
)
def test_what_cannot_be_played_is_refused_beforehand(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((RequestError, ConfigError), match=words):
        prepare(options(**changes))


def test_other_weights_under_the_same_name_are_another_run(tmp_path: Path) -> None:
    shutil.copytree(model_path(BASE), "mine")
    before = prepare(options(model="mine")).arguments
    assert prepare(options(model="mine")).arguments == before
    weights = next(Path("mine").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert prepare(options(model="mine")).arguments != before


@pytest.mark.full
def test_what_was_played_before_is_not_played_again() -> None:
    whole = walks(played(options()))
    half = options(store=None, new_run=True, run_seed=0, max_calls=9, concurrency=2)
    with open_run(prepare(half)) as run:
        run.play(on_played=lambda one: None)
        assert run.reached is not None
        assert 0 < run.n_left < 3
    rest = options(store=Path("rest"), new_run=False)
    with open_run(prepare(rest)) as run:
        assert run.n_before > 0
    assert walks(played(rest)) == whole
