from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.change import changed_files
from trajkit.registry.served import ServedModel, hosted_name
from trajkit.registry.toml_file import Configuration, TomlFile
from trajkit.registry.variant import Registered, register

ONE = """\
# mine
[functions.act]
type = "chat"

[functions.act.variants.base]
type = "chat_completion"
model = "openai::gpt-4.1-mini"
temperature = 0.5

# the second
[functions.act.variants.other]
type = "chat_completion"
model = "openai::gpt-4.1"
"""
TUNED = "openai::ft:gpt-4.1-mini:org::id"


def configuration(*texts: str) -> Configuration:
    return Configuration([TomlFile(Path(f"{number}.toml"), text) for number, text in enumerate(texts)])


def add(given: Configuration, **options: Any) -> Registered:
    chosen = {"function": "act", "template_variant": "base", "variant": "tuned", "model": TUNED, **options}
    return register(given, **chosen)


def function(made: Registered) -> Any:
    return made.configuration.get("functions", "act")


def test_the_new_variant_says_what_its_template_says() -> None:
    found = function(add(configuration(ONE)))
    assert found["variants"]["tuned"] == {"type": "chat_completion", "model": TUNED, "temperature": 0.5}


def test_every_line_that_was_there_is_there_still() -> None:
    made = add(configuration(ONE), traffic=0.2)
    ((_, after),) = changed_files(configuration(ONE), made.configuration)
    lines = iter(after.text.splitlines())
    assert all(line in lines for line in ONE.splitlines())  # in the same order


def test_twice_is_once() -> None:
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    once = add(configuration(ONE), model=served, traffic=0.1)
    twice = add(once.configuration, model=served, traffic=0.1)
    assert list(changed_files(once.configuration, twice.configuration)) == []
    assert twice.notes == ("variant 'tuned' exists already", "it gets 10% of the traffic")


def test_a_model_behind_a_server_gets_a_block_without_a_key() -> None:
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    made = add(configuration(ONE), model=served)
    assert made.configuration.get("models", "tuned-model") == {
        "routing": ["server"],
        "providers": {
            "server": {
                "type": "openai",
                "model_name": "m",
                "api_base": "http://127.0.0.1:1/v1/",
                "api_key_location": "none",
            }
        },
    }
    assert function(made)["variants"]["tuned"]["model"] == "tuned-model"


def test_the_variant_goes_into_the_file_of_its_template() -> None:
    head, tail = ONE.split("\n[functions.act.variants.base]")
    made = add(configuration(head, f"[functions.act.variants.base]{tail}"), traffic=0.1)
    first, second = made.configuration.files
    assert first.get(("functions", "act", "experimentation"))
    assert second.get(("functions", "act", "variants", "tuned"))


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"function": "walk"}, "no function 'walk'", "there are: act"),
        ({"template_variant": "bas"}, "no variant 'bas'", "nearest: base"),
        ({"variant": "other"}, "a variant 'other' with other settings", "--variant"),
        ({"traffic": 1.0}, "a share of 1", "5%"),
        ({"model": ServedModel(name="openai::x", model_name="m", api_base="http://h/")}, "prefix", "--name"),
        (
            {
                "model": ServedModel(
                    name="x", model_name="m", api_base="http://h/", api_key_location="sk-not-a-place"
                )
            },
            "takes the location of the key",
            "env::",
        ),
    ],
)
def test_what_cannot_be_registered_is_said(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        add(configuration(ONE), **options)
    assert hint in (caught.value.hint or "")


def test_a_taken_name_says_what_differs_and_shows_no_key() -> None:
    with pytest.raises(RequestError, match=r"other settings: model, temperature \('openai::gpt-4\.1', not"):
        add(configuration(ONE), variant="other")


def test_paths_hold_from_the_file_that_is_written_into() -> None:
    here = """\
[functions.act]
type = "chat"
[functions.act.variants.base]
type = "chat_completion"
model = "openai::gpt-4.1-mini"
templates.user.path = "user.minijinja"
"""
    there = """\
[functions.act.variants.base]
templates.system.path = "prompts/system.minijinja"
templates.other.path = "/whole/other.minijinja"
input_wrappers.user = "wrapper.minijinja"
"""
    files = [TomlFile(Path("config/a.toml"), here), TomlFile(Path("shared/deep/b.toml"), there)]
    made = add(Configuration(files))
    ((_, after),) = changed_files(Configuration(files), made.configuration)
    assert after.path == Path("config/a.toml")
    tuned = after.get(("functions", "act", "variants", "tuned"))
    assert tuned["templates"] == {
        "user": {"path": "user.minijinja"},
        "system": {"path": "../shared/deep/prompts/system.minijinja"},
        "other": {"path": "/whole/other.minijinja"},
    }
    assert tuned["input_wrappers"] == {"user": "../shared/deep/wrapper.minijinja"}


def test_what_only_some_models_understand_is_said() -> None:
    made = add(configuration(ONE.replace("temperature = 0.5", 'reasoning_effort = "low"')))
    assert function(made)["variants"]["tuned"]["reasoning_effort"] == "low"
    assert "also copied from the template: reasoning_effort, which not every model supports" in made.notes


def test_a_new_model_stands_after_the_others() -> None:
    text = f'[models.a]\nrouting = ["p"]\n[models.a.providers.p]\ntype = "dummy"\nmodel_name = "x"\n\n{ONE}'
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    made = add(configuration(text), model=served)
    (after,) = made.configuration.files
    headers = [line for line in after.text.splitlines() if line.startswith("[")]
    assert headers[2:4] == ["[models.tuned-model]", "[models.tuned-model.providers.server]"]
    with pytest.raises(RequestError, match="another model 'a'"):
        add(configuration(text), model=served.model_copy(update={"name": "a"}))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("openai::ft:gpt-4.1-mini:org::id", "openai::ft:gpt-4.1-mini:org::id"),
        ("ft:gpt-4.1-mini:org::id", "openai::ft:gpt-4.1-mini:org::id"),
        ("accounts/me/models/mine", "fireworks::accounts/me/models/mine"),
        ("together::me/mine", "together::me/mine"),
    ],
)
def test_a_hosted_model_gets_its_providers_prefix(name: str, wanted: str) -> None:
    assert hosted_name(name) == wanted


def test_a_name_that_anybody_could_have_is_not_guessed() -> None:
    with pytest.raises(RequestError, match="the provider of 'me/mine' is not clear") as caught:
        hosted_name("me/mine")
    assert "--api-base" in (caught.value.hint or "")


def test_a_variant_of_another_type_has_no_prompts_to_take() -> None:
    mixed = ONE.replace('type = "chat_completion"\nmodel = "openai::gpt-4.1"', 'type = "best_of_n_sampling"')
    with pytest.raises(RequestError, match="best_of_n_sampling"):
        add(configuration(mixed), template_variant="other")


def test_a_pattern_names_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "deep").mkdir(parents=True)
    (tmp_path / "config" / "a.toml").write_text("[functions.act]\ntype = 'chat'\n")
    (tmp_path / "config" / "deep" / "b.toml").write_text("[functions.act.variants.base]\nmodel = 'm'\n")
    for pattern in (tmp_path / "config" / "**" / "*.toml", "config/**/*.toml"):
        monkeypatch.chdir(tmp_path)
        read = Configuration.read(pattern)
        assert read.get("functions", "act") == {"type": "chat", "variants": {"base": {"model": "m"}}}
    with pytest.raises(ConfigError, match="no configuration"):
        Configuration.read(tmp_path / "none.toml")
