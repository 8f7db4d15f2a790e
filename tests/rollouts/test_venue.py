import os
from datetime import UTC, datetime

import pytest

from trajkit.errors import RequestError
from trajkit.rollouts.gateway.venue import (
    Venue,
    _on_local_stack,
    check_metrics,
    choose_function,
    choose_variants,
    find_venue,
)
from trajkit.stack.gateway_config import GatewayConfig, MetricConfig, prepare_config
from trajkit.stack.local import recipe_config
from trajkit.stack.process import Process
from trajkit.stack.state import LocalStack, ModelServer


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
        with pytest.raises(RequestError, match="the variants of the gateway"):
            choose_variants(there, "act", asked)
    check_metrics(there, ["anything"])


def test_a_place_to_play_is_told_from_others_by_what_it_plays_and_not_by_a_password(
    no_settings, tmp_path, monkeypatch
):
    def identity(url, config):
        monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", url)
        return find_venue(config).identity

    first = prepare_config(recipe_config(), tmp_path / "first", model_url="http://127.0.0.1:1")
    copy = prepare_config(recipe_config(), tmp_path / "copy", model_url="http://127.0.0.1:1")
    mine = identity("http://user:secret@db:8123/tensorzero", first)
    assert "secret" not in repr(mine)
    assert mine == identity("http://other:password@db:8123/tensorzero", first)
    assert mine == identity("http://user:secret@db:8123/tensorzero", copy)
    assert mine != identity("http://user:secret@db:8123/another", first)
    template = copy.parent / "act" / "user_history.minijinja"
    template.write_text(template.read_text() + "!")
    assert mine != identity("http://user:secret@db:8123/tensorzero", copy)


def test_the_local_stack_is_the_same_place_after_a_restart_on_other_ports(tmp_path):
    def identity(port):
        config = prepare_config(recipe_config(), tmp_path / str(port), model_url=f"http://127.0.0.1:{port}")
        process = Process(pid=os.getpid(), birth="now", started_at=datetime.now(UTC))
        return _on_local_stack(
            LocalStack(
                clickhouse_url=f"http://u:p@127.0.0.1:{port}/tensorzero",
                clickhouse=process,
                data_folder=tmp_path / "data",
                config_file=config,
                config_source=recipe_config(),
                model=None,
                model_server=ModelServer(url=f"http://127.0.0.1:{port}", mistakes=0.2, process=process),
            ),
            None,
        ).identity

    assert identity(40001) == identity(40002)
