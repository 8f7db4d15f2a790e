from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.toml_file import Configuration, TomlFile
from trajkit.registry.traffic import share_of
from trajkit.registry.variant import Registered, register

EVEN = """\
[functions.act]
type = "chat"

[functions.act.variants.base]
type = "chat_completion"
model = "openai::gpt-4.1-mini"

[functions.act.variants.other]
type = "chat_completion"
model = "openai::gpt-4.1"
"""
STATIC = (
    EVEN + '\n[functions.act.experimentation]\ntype = "static"\ncandidate_variants = ["base"]  # only it\n'
)
WEIGHTED = EVEN.replace('model = "openai', 'weight = 3\nmodel = "openai')
TUNED = "openai::ft:gpt-4.1-mini:org::id"


def configuration(text: str) -> Configuration:
    return Configuration([TomlFile(Path("tensorzero.toml"), text)])


def add(given: str | Configuration, traffic: float | None = None) -> Registered:
    before = configuration(given) if isinstance(given, str) else given
    return register(
        before, function="act", template_variant="base", variant="tuned", model=TUNED, traffic=traffic
    )


def block(made: Registered) -> Any:
    return made.configuration.get("functions", "act", "experimentation")


def share(made: Registered) -> float | None:
    return share_of(made.configuration, "act", "tuned")


def test_a_function_that_was_sampled_evenly_is_sampled_as_before() -> None:
    made = add(EVEN)
    assert block(made) == {"type": "static", "candidate_variants": {"base": 1.0, "other": 1.0}}
    assert made.notes[-1] == "it gets no traffic: only a call that names 'tuned' reaches it"
    assert "candidate_variants = { base = 1.0, other = 1.0 }\n" in made.configuration.files[0].text


def test_a_share_is_the_share_of_the_whole() -> None:
    made = add(EVEN, 0.05)
    assert block(made)["candidate_variants"] == {"base": 0.475, "other": 0.475, "tuned": 0.05}
    assert made.notes[-1] == "it gets 5% of the traffic"


def test_weights_are_kept_as_weights() -> None:
    quiet = add(WEIGHTED)
    assert quiet.configuration.get("functions", "act", "variants", "tuned", "weight") == 0
    assert block(quiet) is None
    loud = add(WEIGHTED, 0.25)
    assert loud.configuration.get("functions", "act", "variants", "tuned", "weight") == 2  # of 3 + 3 + 2
    assert loud.configuration.get("functions", "act", "variants", "base", "weight") == 3


def test_a_share_of_weights_that_are_all_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no share can be computed"):
        add(WEIGHTED.replace("weight = 3", "weight = 0"), 0.1)


def test_weights_and_a_table_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="sets its traffic twice") as caught:
        add(WEIGHTED + STATIC.removeprefix(EVEN))
    assert "weight of base, other" in caught.value.message


def test_a_static_block_is_left_alone_without_a_share() -> None:
    made = add(STATIC)
    assert block(made)["candidate_variants"] == ["base"]
    assert "# only it" in made.configuration.files[0].text


def test_a_list_that_gets_a_share_becomes_weights() -> None:
    made = add(STATIC, 0.1)
    assert block(made)["candidate_variants"] == {"base": 0.9, "tuned": 0.1}
    assert "# only it" in made.configuration.files[0].text


@pytest.mark.parametrize(
    "named",
    [
        "candidate_variants = { base = 3, other = 1.0 } # mine\n",
        "[functions.act.experimentation.candidate_variants]\nbase = 3 # mine\nother = 1.0\n",
    ],
)
def test_the_weights_that_are_there_stay_what_they_are(named: str) -> None:
    made = add(f'{EVEN}\n[functions.act.experimentation]\ntype = "static"\n{named}', 0.2)
    assert block(made)["candidate_variants"] == {"base": 3, "other": 1.0, "tuned": 1.0}
    assert "# mine" in made.configuration.files[0].text
    assert share(made) == pytest.approx(0.2)


def test_a_share_is_changed_and_taken_away_later() -> None:
    made = add(EVEN)
    for traffic in (0.05, 0.3, 0.3, 0):
        made = add(made.configuration, traffic)
        assert share(made) == pytest.approx(traffic)
    assert block(made)["candidate_variants"].keys() == {"base", "other"}
    weighed = add(WEIGHTED)
    for traffic in (0.05, 0.3, 0):
        weighed = add(weighed.configuration, traffic)
        assert share(weighed) == pytest.approx(traffic)


def test_without_a_word_about_it_a_share_stays() -> None:
    made = add(add(EVEN, 0.05).configuration)
    assert share(made) == pytest.approx(0.05)
    assert made.notes == ("variant 'tuned' exists already", "it gets 5% of the traffic")


def test_a_block_that_decides_by_itself_is_not_contradicted() -> None:
    adaptive = STATIC.replace('"static"', '"adaptive"')
    assert share(add(adaptive)) == 0
    with pytest.raises(ConfigError, match="decides by itself"):
        add(adaptive, 0.1)
    taking_part = add(adaptive.replace('["base"]', '["base", "other"]')).configuration.files[0]
    named = taking_part.with_value(
        ("functions", "act", "experimentation", "candidate_variants"), ["base", "tuned"]
    )
    made = add(Configuration([named]))
    assert share(made) is None
    assert made.notes[-1] == "the gateway's experiment decides how much traffic it gets"


def test_a_block_that_takes_every_variant_names_those_it_had() -> None:
    uniform = EVEN + '\n[functions.act.experimentation]\ntype = "uniform"\n'
    made = add(uniform)
    assert block(made) == {"type": "uniform", "candidate_variants": ["base", "other"]}
    assert (
        made.notes[0]
        == "[functions.act.experimentation] sampled every variant: now it names the existing ones"
    )
    loud = add(uniform, 0.5)
    assert block(loud) == {
        "type": "static",
        "candidate_variants": {"base": 0.25, "other": 0.25, "tuned": 0.5},
    }


def test_a_namespace_that_takes_every_variant_does_not_get_the_new_one_either() -> None:
    space = '[functions.act.experimentation.namespaces.eu]\ntype = "uniform"\n'
    made = add(f"{STATIC}\n{space}")
    assert block(made)["namespaces"]["eu"]["candidate_variants"] == ["base", "other"]


def test_a_variant_of_a_namespace_gets_no_share_of_everything() -> None:
    spaced = STATIC.replace(
        "[functions.act.variants.base]", '[functions.act.variants.base]\nnamespace = "eu"'
    )
    assert add(spaced).configuration.get("functions", "act", "variants", "tuned", "namespace") == "eu"
    with pytest.raises(RequestError, match="for the namespace 'eu' only"):
        add(spaced, 0.1)


@pytest.mark.parametrize("traffic", [1.0, -0.1, 7])
def test_a_share_is_from_nothing_to_below_everything(traffic: float) -> None:
    with pytest.raises(RequestError, match="a share of"):
        add(EVEN, traffic)
