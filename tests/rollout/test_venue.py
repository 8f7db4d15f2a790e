import pytest

from trajkit.errors import RequestError
from trajkit.rollout.venue import Venue, check_metrics, choose_function, choose_variants
from trajkit.stack.gateway_config import GatewayConfig, MetricConfig


def venue(**functions) -> Venue:
    metrics = {"episode_return": MetricConfig("float", "episode", "max")}
    return Venue("here", GatewayConfig(functions, metrics, needs_model_server=False))


@pytest.fixture(autouse=True)
def no_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_function_and_its_only_variant_need_no_name():
    here = venue(solve=("one",))
    assert choose_function(here, None) == "solve"
    assert choose_variants(here, "solve", ()) == ("one",)


def test_of_several_functions_act_is_played_unless_another_is_asked_for():
    here = venue(act=("a", "b"), judge=("c",))
    assert choose_function(here, None) == "act"
    assert choose_function(here, "judge") == "judge"
    assert choose_variants(here, "act", ("all",)) == ("a", "b")
    with pytest.raises(RequestError, match="no function 'fly'") as caught:
        choose_function(here, "fly")
    assert caught.value.hint == "--function: act, judge"


def test_the_folders_own_settings_name_the_function(no_settings):
    (no_settings / "trajkit.toml").write_text('function = "judge"\n')
    assert choose_function(venue(act=("a",), judge=("c",)), None) == "judge"


def test_a_gateway_that_nothing_is_known_of_needs_the_variants_named():
    there = Venue("gateway:3000", None)
    assert choose_function(there, None) == "act"
    assert choose_variants(there, "act", ("a", "b", "a")) == ("a", "b")
    for asked in ((), ("all",)):
        with pytest.raises(RequestError, match="which variants"):
            choose_variants(there, "act", asked)
    check_metrics(there, ["anything"])
