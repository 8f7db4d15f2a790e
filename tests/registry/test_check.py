from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trajkit.errors import ConfigError
from trajkit.registry.check import check_loads
from trajkit.registry.configuration import Configuration
from trajkit.registry.variant import ServedModel, changed_files, register

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(RECIPE, tmp_path / "babyai")
    return tmp_path / "babyai" / "tensorzero.toml"


@pytest.mark.parametrize("traffic", [None, 0.05])
def test_the_gateway_takes_what_is_registered(config: Path, traffic: float | None) -> None:
    before = config.read_text()
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    made = register(
        Configuration.read(config),
        function="act",
        template_variant="history_and_reasoning",
        variant="history_and_reasoning_sft",
        model=served,
        traffic=traffic,
    )
    assert check_loads(made.configuration) == ()
    assert config.read_text() == before
    assert [path.name for path in config.parent.iterdir() if path.name.startswith(".")] == []


def test_a_key_that_is_missing_here_is_no_reason_to_refuse(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_OTHER_KEY", raising=False)
    served = ServedModel(
        name="tuned-model",
        model_name="m",
        api_base="http://127.0.0.1:1/v1/",
        api_key_location="env::SOME_OTHER_KEY",
    )
    given = Configuration.read(config)
    made = register(given, function="act", template_variant="baseline", variant="tuned", model=served)
    assert check_loads(made.configuration) == ("SOME_OTHER_KEY",)


def test_what_the_gateway_says_against_it_is_shown(config: Path) -> None:
    broken = Configuration.read(config)
    file = broken.files[0].with_value(("functions", "act", "variants", "baseline", "json_mode"), "sometimes")
    with pytest.raises(ConfigError, match=r"refuses the configuration: .*json_mode"):
        check_loads(broken.replacing(file))
    assert [path.name for path in config.parent.iterdir() if path.name.startswith(".")] == []


def test_a_configuration_in_several_files_is_loaded_whole(config: Path) -> None:
    text = config.read_text()
    head, tail = text.split("[metrics.episode_return]")
    config.write_text(head)
    (config.parent / "more").mkdir()
    (config.parent / "more" / "metrics.toml").write_text(f"[metrics.episode_return]{tail}")
    read = Configuration.read(config.parent / "**" / "*.toml")
    assert len(read.files) == 2
    made = register(
        read, function="act", template_variant="baseline", variant="tuned", model="openai::gpt-4.1-mini"
    )
    check_loads(made.configuration)
    ((before, _),) = changed_files(read, made.configuration)
    assert before.path == config
