"""A model enters LiteLLM's configuration as text: comments and order stay, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trajkit.errors import ConfigError, RequestError
from trajkit.registry.proxy_config import ProxyConfig, add_model
from trajkit.registry.served import ServedModel

ENTRY = "hosted_vllm/tuned"
MODEL = ServedModel(name="tuned", model_name="tuned", api_base="http://127.0.0.1:8000/v1/")
BLOCK = """\
# who may call what
model_list:
  - model_name: gpt   # the old one
    litellm_params:
      model: openai/gpt-4.1
      api_key: os.environ/OPENAI_API_KEY
  - model_name: "claude-*"
    litellm_params: {model: "anthropic/*"}

# how calls are routed
router_settings:
  model_group_alias: {smart: gpt}
litellm_settings:
  fallbacks: [{gpt: [backup]}]
"""
FORMS = {
    "block": BLOCK,
    "no indent": BLOCK.replace("\n  - ", "\n- ").replace("\n    litellm", "\n  litellm"),
    "list last": "litellm_settings: {}\nmodel_list:\n- model_name: gpt\n  litellm_params:\n    model: x # y",
    "crlf": BLOCK.replace("\n", "\r\n"),
    "flow": 'model_list: [{"model_name": "gpt", "litellm_params": {"model": "x"}}] # one\nz: 1\n',
    "empty flow": "model_list: []\n",
    "null": "a: 1\nmodel_list:\nb: 2 # two\n",
    "no list": "# nothing yet\nlitellm_settings:\n  drop_params: true",
    "empty": "",
    "text last": (
        "model_list:\n  - model_name: gpt\n    litellm_params:\n      model: x\n"
        "      note: |\n        # no comment\n\nb: 1\n"
    ),
    "anchors": "base: &base {model: x}\nmodel_list:\n  - model_name: gpt\n    litellm_params: *base\n",
    "document": "---\nmodel_list:\n  - model_name: gpt\n    litellm_params:\n      model: x\n",
}


def config(text: str) -> ProxyConfig:
    return ProxyConfig(Path("config.yaml"), text)


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_only_the_entry_is_new_and_every_old_line_stays(text: str) -> None:
    made = add_model(config(text), MODEL, "tuned").configuration
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(made.files[0].text)
    new = {
        "model_name": "tuned",
        "litellm_params": {"model": ENTRY, "api_base": "http://127.0.0.1:8000/v1/"},
    }
    assert after == {**before, "model_list": [*(before.get("model_list") or ()), new]}
    lines = made.files[0].text.splitlines()
    if not text.startswith("model_list: ["):
        rest = iter(lines)
        assert all(any(line == other for other in rest) for line in text.splitlines())
    assert text.count("#") == made.files[0].text.count("#")
    assert ("\r\n" in text) == ("\r\n" in made.files[0].text)
    again = add_model(made, MODEL, "tuned")
    assert again.configuration is made
    assert again.notes == ("'tuned' exists already",)


def test_the_entry_stands_before_the_comments_of_what_follows() -> None:
    text = add_model(config(BLOCK), MODEL, "tuned").configuration.files[0].text
    assert text.index("model_name: tuned") < text.index("# how calls are routed")


@pytest.mark.parametrize("name", ["gpt", "smart", "backup", "claude-*"])
def test_a_name_that_has_traffic_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="uses the name"):
        add_model(config(BLOCK), MODEL, name)


def test_a_name_that_a_pattern_answered_is_said() -> None:
    notes = add_model(config(BLOCK), MODEL, "claude-tuned").notes
    assert notes[-1] == "claude-* answered to 'claude-tuned' before: an exact name takes precedence"


def test_the_names_of_an_included_file_count(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(
        "model_list:\n  - model_name: other\n    litellm_params: {model: x}\n"
    )
    (tmp_path / "config.yaml").write_text("include:\n  - more.yaml\n")
    with pytest.raises(RequestError, match="uses the name 'other'"):
        add_model(ProxyConfig.read(tmp_path / "config.yaml"), MODEL, "other")


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("openai::ft:gpt:x", {"model": "openai/ft:gpt:x", "api_key": "os.environ/OPENAI_API_KEY"}),
        ("together::me/m", {"model": "together_ai/me/m", "api_key": "os.environ/TOGETHER_API_KEY"}),
        ("mistral::m", {"model": "mistral/m"}),
        (
            MODEL.model_copy(update={"api_key_location": "env::BOX"}),
            {"model": "openai/tuned", "api_base": MODEL.api_base, "api_key": "os.environ/BOX"},
        ),
    ],
)
def test_a_model_has_litellms_name_and_the_place_of_its_key(
    model: str | ServedModel, wanted: dict[str, str]
) -> None:
    made = add_model(config(BLOCK), model, "tuned").configuration
    assert made.models[-1]["litellm_params"] == wanted


def test_a_key_in_a_file_and_a_password_are_refused() -> None:
    for changed in ({"api_key_location": "path::key"}, {"api_base": "http://a:b@box/v1"}):
        with pytest.raises(RequestError):
            add_model(config(BLOCK), MODEL.model_copy(update=changed), "tuned")


@pytest.mark.parametrize("text", ["a: [", "- 1", "model_list: {a: 1}", "model_list: [1]", "a: !!python/x 1"])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml is no"):
        config(text)


def test_a_form_that_cannot_be_edited_is_refused_with_the_entry() -> None:
    with pytest.raises(ConfigError, match="no model can be added"):
        add_model(config("a: 1\n...\n"), MODEL, "tuned")
