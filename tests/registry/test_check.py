from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trajkit.errors import ConfigError
from trajkit.registry.change import changed_files
from trajkit.registry.check import check_loads
from trajkit.registry.served import ServedModel
from trajkit.registry.toml_file import Configuration
from trajkit.registry.variant import register

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(RECIPE, tmp_path / "babyai")
    return tmp_path / "babyai" / "tensorzero.toml"


MODELS = """
[models.lower]
routing = ["p"]
[models.lower.providers.p]
type = "openai"
model_name = "x"
api_key_location = "env::lower_case_key"

[models.file]
routing = ["p"]
[models.file.providers.p]
type = "openai"
model_name = "x"
api_key_location = "path::/nowhere/key"

[models.claude]
routing = ["p"]
[models.claude.providers.p]
type = "anthropic"
model_name = "x"

[models.azure]
routing = ["p"]
[models.azure.providers.p]
type = "azure"
deployment_id = "x"
endpoint = "env::SOME_ENDPOINT"

[models.gemini]
routing = ["p"]
[models.gemini.providers.p]
type = "gcp_vertex_gemini"
model_id = "x"
location = "us"
project_id = "p"
"""


def test_the_gateway_takes_what_is_registered_where_credentials_are_missing_and_writes_nothing(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SOME_OTHER_KEY", "ANTHROPIC_API_KEY", "AZURE_API_KEY", "GCP_VERTEX_CREDENTIALS_PATH"):
        monkeypatch.delenv(name, raising=False)
    storage = f'[object_storage]\ntype = "filesystem"\npath = "{tmp_path / "objects"}"\n'
    before = config.read_text() + MODELS + storage
    config.write_text(before)
    served = ServedModel(
        name="tuned-model",
        model_name="m",
        api_base="http://127.0.0.1:1/v1/",
        api_key_location="env::SOME_OTHER_KEY",
    )
    made = register(
        Configuration.read(config),
        function="act",
        template_variant="history_and_reasoning",
        variant="history_and_reasoning_sft",
        model=served,
        traffic=0.05,
    )
    missing = ("ANTHROPIC_API_KEY", "AZURE_API_KEY", "SOME_ENDPOINT", "SOME_OTHER_KEY", "lower_case_key")
    assert check_loads(made.configuration) == missing
    assert config.read_text() == before
    assert [path.name for path in config.parent.iterdir() if path.name.startswith(".")] == []
    assert not (tmp_path / "objects").exists()


@pytest.mark.parametrize(
    "more",
    [
        "[rate_limiting]\nenabled = true\n"
        "[[rate_limiting.rules]]\nmodel_inferences_per_second = 1\nalways = true\n",
        "[postgres]\nenabled = true\n",
        "[gateway.auth]\nenabled = true\n",
    ],
)
def test_what_needs_a_database_is_read_without_one(
    config: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    # nothing listens there: a request would fail
    for name in ("CLICKHOUSE", "POSTGRES", "VALKEY"):
        monkeypatch.setenv(f"TENSORZERO_{name}_URL", "http://127.0.0.1:1/")
    if "auth" in more:
        more = ""
        config.write_text(config.read_text().replace("[gateway]", "[gateway]\nauth.enabled = true"))
    config.write_text(config.read_text() + more)
    assert check_loads(Configuration.read(config)) == ()


def test_an_experiment_that_decides_by_itself_is_read_and_its_mistakes_are_seen(config: Path) -> None:
    static = 'type = "static"\ncandidate_variants = { baseline = 1.0 }'
    adaptive = 'type = "adaptive"\nmetric = "progression"\ncandidate_variants = ["baseline", "history"]'
    text = config.read_text()
    config.write_text(text.replace(static, adaptive))
    assert check_loads(Configuration.read(config)) == ()
    config.write_text(text.replace(static, adaptive.replace("progression", "nothing")))
    with pytest.raises(ConfigError, match=r"refuses the configuration: .*unknown metric 'nothing'"):
        check_loads(Configuration.read(config))
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
