from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.matrix import daily
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


MODEL = """
[models.other]
routing = ["p"]

[models.other.providers.p]
type = "{type}"
{rest}
"""


@pytest.mark.parametrize(
    ("kind", "rest", "given"),
    daily(
        [
            ("openai", 'model_name = "x"\napi_key_location = "env::lower_case_key"', ("lower_case_key",)),
            ("openai", 'model_name = "x"\napi_key_location = "path::/nowhere/key"', ()),
            ("anthropic", 'model_name = "x"', ("ANTHROPIC_API_KEY",)),
            (
                "azure",
                'deployment_id = "x"\nendpoint = "env::SOME_ENDPOINT"',
                ("AZURE_API_KEY", "SOME_ENDPOINT"),
            ),
            ("gcp_vertex_gemini", 'model_id = "x"\nlocation = "us"\nproject_id = "p"', ()),
        ],
        2,
    ),
)
def test_credentials_of_every_kind_may_be_missing_here(
    config: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rest: str, given: tuple[str, ...]
) -> None:
    for name in ("ANTHROPIC_API_KEY", "AZURE_API_KEY", "GCP_VERTEX_CREDENTIALS_PATH"):
        monkeypatch.delenv(name, raising=False)
    config.write_text(config.read_text() + MODEL.format(type=kind, rest=rest))
    assert check_loads(Configuration.read(config)) == given


def test_nothing_is_written_into_an_object_store(config: Path, tmp_path: Path) -> None:
    storage = f'[object_storage]\ntype = "filesystem"\npath = "{tmp_path / "objects"}"\n'
    config.write_text(config.read_text() + storage)
    check_loads(Configuration.read(config))
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
    with pytest.raises(ConfigError, match="unknown metric 'nothing'"):
        check_loads(Configuration.read(config))


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
