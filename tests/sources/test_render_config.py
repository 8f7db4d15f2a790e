"""The templates of a configuration, from its files and from the snapshot that a gateway makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajkit.errors import ConfigError
from trajkit.sources.tensorzero.render.config import Template, from_snapshot
from trajkit.sources.tensorzero.render.files import from_file

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"

FUNCTION = """
[functions.f]
type = "json"
system_schema = "schemas/system.json"
schemas.user.path = "schemas/user.json"
[functions.f.variants.v]
type = "chat_completion"
model = "m"
json_mode = "on"
system_template = "prompts/system.minijinja"
templates.user.path = "prompts/user.minijinja"
input_wrappers.assistant = "prompts/assistant.html"
[models.m]
routing = ["b", "a"]
providers.a.type = "anthropic"
providers.b.type = "openai"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("schemas/system.json", "schemas/user.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    for name in ("system.minijinja", "user.minijinja", "assistant.html"):
        (tmp_path / "prompts").mkdir(exist_ok=True)
        (tmp_path / "prompts" / name).write_text(f"this is {name}")
    return tmp_path


def test_files_are_found_beside_the_one_that_names_them(folder: Path) -> None:
    (folder / "tensorzero.toml").write_text(FUNCTION)
    configuration = from_file(folder / "tensorzero.toml")
    assert configuration.variants("f") == ("v",)
    variant = configuration.variant("f", "v")
    assert variant.templates == {
        "system": Template("prompts/system.minijinja", "this is system.minijinja", True, False),
        "user": Template("prompts/user.minijinja", "this is user.minijinja", False, False),
        "assistant": Template("prompts/assistant.html", "this is assistant.html", True, True),
    }
    assert variant.is_prefixed
    assert configuration.load("prompts/user.minijinja") == "this is user.minijinja"
    assert configuration.load("nowhere") is None


def test_a_pattern_names_several_files_that_are_one_configuration(folder: Path) -> None:
    (folder / "models").mkdir()
    functions, _, models = FUNCTION.partition("[models.m]")
    (folder / "tensorzero.toml").write_text(functions)
    (folder / "models" / "m.toml").write_text("[models.m]" + models)
    variant = from_file(folder / "**" / "*.toml").variant("f", "v")
    assert variant.is_prefixed
    assert variant.templates["user"].text == "this is user.minijinja"
    (folder / "again.toml").write_text(functions.replace("schemas/", f"{folder}/schemas/"))
    with pytest.raises(ConfigError, match="'type' is declared in another file too"):
        from_file(folder / "**" / "*.toml")


def test_a_snapshot_has_the_files_inside() -> None:
    text = """
    [functions.f]
    type = "chat"
    [functions.f.variants.v]
    type = "chat_completion"
    model = "openai::gpt"
    [functions.f.variants.v.user_template]
    __tensorzero_remapped_path = "user.minijinja"
    __data = "inside"
    [functions.f.variants.v.templates.older]
    path = "older.minijinja"
    """
    configuration = from_snapshot("a snapshot", text, {"older.minijinja": "beside", "part.minijinja": "part"})
    assert configuration.variant("f", "v").templates == {
        "user": Template("user.minijinja", "inside", True, True),
        "older": Template("older.minijinja", "beside", False, False),
    }
    assert configuration.load("part.minijinja") == "part"
    assert configuration.variants("g") == ()


@pytest.mark.parametrize(
    ("model", "is_prefixed"),
    [("m", True), ("openai::gpt-4o", True), ("anthropic::claude", False), ("nowhere", False)],
)
def test_the_provider_that_is_asked_first_decides_on_the_line_of_json_mode(
    folder: Path, model: str, is_prefixed: bool
) -> None:
    (folder / "tensorzero.toml").write_text(FUNCTION.replace('model = "m"', f'model = "{model}"'))
    assert from_file(folder / "tensorzero.toml").variant("f", "v").is_prefixed is is_prefixed


def test_files_that_are_not_there_or_not_toml_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*nowhere\.toml"):
        from_file(folder / "nowhere.toml")
    (folder / "broken.toml").write_text("[functions")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        from_file(folder / "broken.toml")
    (folder / "prompts" / "user.minijinja").unlink()
    (folder / "tensorzero.toml").write_text(FUNCTION)
    with pytest.raises(ConfigError, match=r"there is no template file .*user\.minijinja"):
        from_file(folder / "tensorzero.toml").variant("f", "v")


def test_templates_may_include_what_lies_below_the_named_folder_and_nothing_else(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "a.minijinja").write_text("part a")
    (folder / "secret").write_text("no")
    (folder / "parts" / ".hidden").write_text("no")
    (folder / "tensorzero.toml").write_text(
        '[gateway]\ntemplate_filesystem_access.base_path = "parts"\n' + FUNCTION
    )
    configuration = from_file(folder / "tensorzero.toml")
    assert configuration.load("a.minijinja") == "part a"
    for name in ("../secret", ".hidden", "nowhere", "", "a.minijinja/b", str(folder / "secret")):
        assert configuration.load(name) is None


def test_the_recipes_templates_are_read() -> None:
    configuration = from_file(RECIPE)
    assert "history" in configuration.variants("act")
    variant = configuration.variant("act", "history")
    assert set(variant.templates) == {"system", "user"}
    assert not variant.is_prefixed
