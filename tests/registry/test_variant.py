from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.configuration import Configuration
from trajkit.registry.toml_file import TomlFile
from trajkit.registry.variant import Registered, ServedModel, changed_files, register

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


def test_a_function_that_was_sampled_evenly_is_sampled_as_before() -> None:
    made = add(configuration(ONE))
    assert function(made)["experimentation"] == {
        "type": "static",
        "candidate_variants": {"base": 1.0, "other": 1.0},
    }
    assert "no traffic" in made.notes[0]


def test_every_line_that_was_there_is_there_still() -> None:
    made = add(configuration(ONE), traffic=0.2)
    ((_, after),) = changed_files(configuration(ONE), made.configuration)
    lines = iter(after.text.splitlines())
    assert all(line in lines for line in ONE.splitlines())  # in the same order


@pytest.mark.parametrize("traffic", [0.05, 0.5])
def test_a_share_is_the_share_of_the_whole(traffic: float) -> None:
    weights = function(add(configuration(ONE), traffic=traffic))["experimentation"]["candidate_variants"]
    assert weights["tuned"] / sum(weights.values()) == pytest.approx(traffic)
    assert weights["base"] == weights["other"]


def test_weights_are_kept_as_weights() -> None:
    weighted = ONE.replace('model = "openai', 'weight = 3\nmodel = "openai')
    quiet = function(add(configuration(weighted)))
    assert quiet["variants"]["tuned"]["weight"] == 0
    assert "experimentation" not in quiet
    loud = function(add(configuration(weighted), traffic=0.25))
    assert loud["variants"]["tuned"]["weight"] == 2  # of 3 + 3 + 2
    assert function(add(configuration(weighted), traffic=0.25))["variants"]["base"]["weight"] == 3


STATIC = (
    ONE + '\n[functions.act.experimentation]\ntype = "static"\ncandidate_variants = ["base"]  # only it\n'
)


def test_a_static_block_is_left_alone_without_a_share() -> None:
    made = add(configuration(STATIC))
    assert function(made)["experimentation"]["candidate_variants"] == ["base"]
    assert made.notes == (
        "[functions.act.experimentation] does not name the new variant: it gets no traffic",
    )


def test_a_static_block_gets_the_share() -> None:
    weights = function(add(configuration(STATIC), traffic=0.1))["experimentation"]["candidate_variants"]
    assert weights == {"base": 1.0, "tuned": pytest.approx(1 / 9)}


def test_a_block_that_decides_by_itself_is_not_contradicted() -> None:
    adaptive = STATIC.replace('"static"', '"track_and_stop"')
    assert function(add(configuration(adaptive)))["variants"]["tuned"]
    with pytest.raises(ConfigError, match="decides by itself"):
        add(configuration(adaptive), traffic=0.1)
    everybody = ONE + '\n[functions.act.experimentation]\ntype = "uniform"\n'
    with pytest.raises(ConfigError, match="gives every variant traffic"):
        add(configuration(everybody))


def test_twice_is_once() -> None:
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    once = add(configuration(ONE), model=served, traffic=0.1)
    twice = add(once.configuration, model=served, traffic=0.1)
    assert list(changed_files(once.configuration, twice.configuration)) == []
    assert twice.notes == ("variant 'tuned' is there already",)


def test_a_model_behind_a_server_gets_a_block_without_a_key() -> None:
    served = ServedModel(name="tuned-model", model_name="m", api_base="http://127.0.0.1:1/v1/")
    made = add(configuration(ONE), model=served)
    assert made.configuration.get("models", "tuned-model") == {
        "routing": ["trajkit"],
        "providers": {
            "trajkit": {
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
        ({"function": "walk"}, "no function 'walk'", "act"),
        ({"template_variant": "best"}, "no variant 'best'", "base, other"),
        ({"variant": "other"}, "a variant 'other' that says something else", "--variant"),
        ({"traffic": 1.0}, "a share of 1", "5%"),
        ({"model": ServedModel(name="openai::x", model_name="m", api_base="http://h/")}, "prefix", ""),
    ],
)
def test_what_cannot_be_registered_is_said(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        add(configuration(ONE), **options)
    assert hint in (caught.value.hint or "")


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
