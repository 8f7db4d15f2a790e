from pathlib import Path

import pytest

from trajkit.rollouts.gateway.paid import asked_by, is_here
from trajkit.rollouts.gateway.venue import Venue
from trajkit.rollouts.options import Options
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.preparation import Session, Sight
from trajkit.rollouts.running.costs import CHARACTERS_PER_TOKEN, OUTPUT_TOKENS, estimate
from trajkit.rollouts.running.limits import Prices
from trajkit.stack.gateway_config import read_config
from trajkit.stack.local import recipe_config

CONFIG = """
[models.here.providers.one]
type = "vllm"
api_base = "http://127.0.0.1:8000/v1/"
model_name = "m"

[models.there.providers.one]
type = "openai"
model_name = "m"

[models.mixed]
routing = ["one", "two"]
[models.mixed.providers.one]
type = "vllm"
api_base = "http://[::1]:8000/v1/"
[models.mixed.providers.two]
type = "openai"
api_base = "https://models.example.com/v1/"

[models.nothing.providers.one]
type = "dummy"

[functions.act]
type = "json"
[functions.act.variants]
local = { type = "chat_completion", model = "here", max_tokens = 100 }
dummy = { type = "chat_completion", model = "nothing" }
remote = { type = "chat_completion", model = "there", max_tokens = 200, user_template = "user.minijinja" }
mixed = { type = "chat_completion", model = "mixed" }
short = { type = "chat_completion", model = "openai::gpt-x" }

[functions.act.variants.best]
type = "experimental_best_of_n_sampling"
candidates = ["local", "remote"]
evaluator = { model = "short::judge" }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "user.minijinja").write_text("x" * 60)
    path = tmp_path / "tensorzero.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://localhost:1/", True),
        ("http://[::1]:8000", True),
        ("https://api.openai.com/v1", False),
        ("http://10.0.0.4:8000/v1", False),
        ("http://localhost.example.com/", False),
        ("", False),
    ],
)
def test_what_is_on_this_machine_costs_nothing(url, expected):
    assert is_here(url) is expected


@pytest.mark.parametrize(
    ("variant", "models", "n_calls", "max_tokens"),
    [
        ("local", (), 1, 100),
        ("dummy", (), 1, None),
        ("remote", ("there",), 1, 200),
        ("mixed", ("mixed",), 1, None),
        ("short", ("openai::gpt-x",), 1, None),
        ("best", ("short::judge", "there"), 3, None),
    ],
)
def test_a_variant_asks_what_its_configuration_says(config, variant, models, n_calls, max_tokens):
    asked = asked_by(config, "act", variant)
    assert sorted(asked.models) == sorted(models)
    assert (asked.n_calls, asked.max_tokens) == (n_calls, max_tokens)


def test_the_stand_in_costs_nothing_unless_something_else_takes_its_place():
    assert asked_by(recipe_config(), "act", "history").models == ()
    assert asked_by(recipe_config(), "act", "history", stand_in_is="openai::gpt-x").models == ("agent",)


SIGHT = Sight(("r",), 10, 30, 300)


def session(venue=None, function=None, prices=None, sights=(SIGHT,), options=None, **changes) -> Session:
    plan = Plan(**{"env_id": "w", "tasks": ("a",), "variants": ("v",), "seeds": "0:2", **changes})
    return Session(Options(env_id="w", **(options or {})), plan, sights, venue, function, prices)


def of(config: Path, *variants: str, n_episodes=None, **changes):
    sights = (Sight(("r",), 64, 30, 300), Sight(("r",), 128, 30, 600))
    venue = Venue("here", read_config(config), config, described_by=config)
    shared = {"sights": sights, "tasks": ("a", "b"), "variants": variants, "seeds": "0:10", **changes}
    made = session(venue, "act", **shared)
    return estimate(made, made.plan.n_episodes if n_episodes is None else n_episodes)


def test_the_most_calls_are_the_step_limits_of_all_episodes(config):
    # 10 seeds of two tasks with 64 and 128 steps
    assert of(config, "remote").n_calls == 10 * (64 + 128)
    assert of(config, "remote", max_steps=100).n_calls == 10 * (64 + 100)
    assert of(config, "best").n_calls == 3 * 10 * (64 + 128)
    assert of(config, "remote", n_episodes=3).n_calls == 3 * 128  # which ones are left is not looked at
    assert of(config, "remote", options={"max_calls": 7}).n_calls == 7
    assert of(config, "remote", sights=(Sight(("r",), None, 1, 1), Sight(("r",), 5, 1, 1))).n_calls is None


def test_tokens_are_estimated_from_what_is_seen_and_bounded_where_something_bounds_them(config):
    found = of(config, "remote", history=8, prices=Prices(1.0, 10.0))
    # the template (60), the mission (30), and the longer observation now and in 8 steps of history
    each = -(-(60 + 30 + 9 * 600) // CHARACTERS_PER_TOKEN)
    assert found.n_input_tokens == found.n_calls * each
    assert (found.n_output_tokens, found.is_output_bound) == (found.n_calls * 200, True)
    assert found.cost_usd == pytest.approx((found.n_input_tokens + 10 * found.n_output_tokens) / 1e6)
    loose = of(config, "remote", "short")
    assert (loose.n_output_tokens, loose.is_output_bound) == (loose.n_calls * OUTPUT_TOKENS, False)
    assert loose.cost_usd is None
    assert loose.models == ("there (variant remote)", "openai::gpt-x (variant short)")


def test_a_limit_on_money_bounds_the_price(config):
    options = {"max_cost_usd": 0.5, "input_price": 1.0, "output_price": 10.0}
    assert of(config, "remote", prices=Prices(1.0, 10.0), options=options).cost_usd == 0.5


def test_a_gateway_of_which_nothing_is_known_may_cost_money():
    found = estimate(session(Venue("gateway:3000", None), "act"), 2)
    assert found.models == ("any model of the gateway at gateway:3000",)
    assert found.n_calls == 20


def test_scripted_policies_ask_nothing():
    found = estimate(session(options={"policy": "expert"}, variants=("expert",)), 2)
    assert (found.models, found.n_calls) == ((), 0)


def test_an_agent_with_a_key_at_hand_may_ask_anything(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    def models(**options):
        return estimate(session(options={"policy": "m:A", **options}, variants=("m:A",)), 2)

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert models().models == ()
    assert models(model="x", model_url="http://127.0.0.1:1/v1").models == ()
    assert models(model="x").models == ("x at api.openai.com/v1",)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    found = models()
    assert found.models == ("any model of the agent at api.openai.com/v1",)
    assert found.n_calls is None
