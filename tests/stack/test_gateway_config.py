from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.stack.conftest import RECIPE, check_config
from trajkit.errors import ConfigError, StoreError
from trajkit.stack.gateway_config import MetricConfig, prepare_config, read_config

PLAIN = """\
# a comment to keep
[models.own]
routing = ["vendor"]
[models.own.providers.vendor]
type = "openai"
model_name = "m"
api_base = "http://127.0.0.1:9/v1/"
api_key_location = "none"

[functions.answer]
type = "chat"
[functions.answer.variants.plain]
type = "chat_completion"
model = "own"  # ours
"""


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tensorzero.toml"
    path.write_text(text, encoding="utf-8")
    return path


def parsed(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_names_of_functions_variants_and_metrics_are_read() -> None:
    config = read_config(RECIPE)
    assert config.functions == {
        "act": ("baseline", "reasoning", "history", "history_and_reasoning", "corrected")
    }
    assert config.metrics == {
        "episode_return": MetricConfig("float", "episode", "max"),
        "progression": MetricConfig("float", "episode", "max"),
    }
    assert config.needs_model_server


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gateway", "is not valid TOML"),
        ("functions = 3", "is not a gateway's configuration"),
        ("[functions]\nact = 3", "is not a gateway's configuration"),
        ("[models]\nagent = 3", "is not a gateway's configuration"),
        ('[metrics.win]\ntype = "boolean"', "a metric has no 'level'"),
    ],
)
def test_a_file_that_is_no_configuration_is_named_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(path)
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_or_not_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "latin.toml")


def test_the_copy_writes_rows_at_once_and_reports_nothing_home(tmp_path: Path) -> None:
    careless = PLAIN + "\n[gateway.observability]\nasync_writes = true\n"
    goal = prepare_config(written(tmp_path / "mine", careless), tmp_path / "copy", model_url=None)
    assert parsed(goal)["gateway"] == {
        "observability": {"async_writes": False, "enabled": True},
        "disable_pseudonymous_usage_analytics": True,
    }
    check_config(goal)
    goal = prepare_config(written(tmp_path / "plain", PLAIN), tmp_path / "other", model_url=None)
    assert parsed(goal)["gateway"]["observability"] == {"async_writes": False, "enabled": True}
    assert "# a comment to keep" in goal.read_text()
    check_config(goal)


def test_the_recipe_gets_the_address_of_the_model_server_and_keeps_its_comments(tmp_path: Path) -> None:
    goal = prepare_config(RECIPE, tmp_path / "copy", model_url="http://127.0.0.1:1234")
    document = parsed(goal)
    assert document["models"]["agent"]["providers"]["stand_in"]["api_base"] == "http://127.0.0.1:1234/v1/"
    expected = parsed(RECIPE)
    expected["models"] = document["models"]
    assert document == expected  # nothing else has changed
    comments = [line for line in RECIPE.read_text().splitlines() if line.startswith("#")]
    assert [line for line in goal.read_text().splitlines() if line.startswith("#")] == comments
    assert sorted(path.name for path in (goal.parent / "act").iterdir()) == sorted(
        path.name for path in (RECIPE.parent / "act").iterdir()
    )
    check_config(goal)


def test_another_model_takes_the_place_of_the_stand_in_in_every_variant(tmp_path: Path) -> None:
    goal = prepare_config(RECIPE, tmp_path / "copy", model_url=None, model="openai::gpt-4.1-mini")
    variants = parsed(goal)["functions"]["act"]["variants"]
    assert {variant["model"] for variant in variants.values()} == {"openai::gpt-4.1-mini"}
    assert not read_config(goal).needs_model_server
    check_config(goal)


def test_a_model_without_a_variant_for_it_and_a_variant_without_its_server_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'openai::gpt-4\.1-mini' would change nothing"):
        prepare_config(
            written(tmp_path, PLAIN), tmp_path / "copy", model_url=None, model="openai::gpt-4.1-mini"
        )
    assert not (tmp_path / "copy").exists()
    with pytest.raises(ConfigError, match="which is not running") as caught:
        prepare_config(RECIPE, tmp_path / "copy", model_url=None)
    assert caught.value.hint == "start it with `trajkit up`"


def test_only_files_that_the_configuration_names_are_copied(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    path = written(mine, PLAIN + 'templates.system.path = "prompts/system.minijinja"\n')
    (mine / "prompts").mkdir()
    (mine / "prompts" / "system.minijinja").write_text("Be kind.")
    (mine / ".env").write_text("OPENAI_API_KEY=not-for-you")
    goal = prepare_config(path, tmp_path / "copy", model_url=None)
    copied = sorted(str(file.relative_to(goal.parent)) for file in goal.parent.rglob("*") if file.is_file())
    assert copied == ["prompts/system.minijinja", "tensorzero.toml"]
    check_config(goal)


def test_files_outside_the_folder_are_used_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "shared.minijinja").write_text("Be brief.")
    path = written(tmp_path / "mine", PLAIN + 'templates.system.path = "../shared.minijinja"\n')
    goal = prepare_config(path, tmp_path / "deep" / "er" / "copy", model_url=None)
    variant = parsed(goal)["functions"]["answer"]["variants"]["plain"]
    assert variant["templates"]["system"]["path"] == str(tmp_path / "shared.minijinja")
    check_config(goal)


def test_templates_that_include_others_find_them(tmp_path: Path) -> None:
    text = '[gateway]\ntemplate_filesystem_access.base_path = "parts"\n' + PLAIN
    path = written(tmp_path / "mine", text + 'templates.system.path = "system.minijinja"\n')
    (tmp_path / "mine" / "parts").mkdir()
    (tmp_path / "mine" / "parts" / "tone.minijinja").write_text("Be kind.")
    (tmp_path / "mine" / "system.minijinja").write_text('{% include "tone.minijinja" %}')
    goal = prepare_config(path, tmp_path / "copy", model_url=None)
    assert parsed(goal)["gateway"]["template_filesystem_access"]["base_path"] == str(
        tmp_path / "mine" / "parts"
    )
    check_config(goal)


def test_a_text_that_is_too_long_for_a_name_is_a_text(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mine", PLAIN + f'\n[functions.answer2]\ntype = "chat"\ndescription = "{"x" * 5000}"\n'
    )
    goal = prepare_config(path, tmp_path / "copy", model_url=None)
    assert parsed(goal)["functions"]["answer2"]["description"] == "x" * 5000
    with pytest.raises(StoreError, match="exists already"):
        prepare_config(path, tmp_path / "copy", model_url=None)


def test_models_at_the_stand_ins_address_are_those_that_are_served(tmp_path: Path) -> None:
    named = """

[models.mine]
routing = ["trajkit"]
[models.mine.providers.trajkit]
type = "openai"
model_name = "second"
api_base = "http://trajkit-model-server.invalid/v1/"
api_key_location = "none"
"""
    shutil.copytree(RECIPE.parent, tmp_path / "source")
    source = tmp_path / "source" / RECIPE.name
    source.write_text(source.read_text() + named + PLAIN.partition("[functions")[0])
    made = parsed(
        prepare_config(source, tmp_path / "made", model_url="http://127.0.0.1:7", served=["first", "second"])
    )
    found = {
        name: next(iter(model["providers"].values()))["model_name"] for name, model in made["models"].items()
    }
    assert found == {"agent": "first", "mine": "second", "own": "m"}
    assert made["models"]["mine"]["providers"]["trajkit"]["api_base"] == "http://127.0.0.1:7/v1/"
