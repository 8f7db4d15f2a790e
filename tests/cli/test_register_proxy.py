"""`trajkit register` with a configuration of LiteLLM; the real proxy serves it in the full tests."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from tests.cli.jobs import a_job, a_store, an_episode
from tests.pages import run as run_line
from tests.rollouts.test_agent_docs import EXAMPLES
from tests.sources.litellm import record
from trajkit.cli.main import run
from trajkit.registry.proxy_check import check_serves
from trajkit.registry.proxy_config import ProxyConfig, add_model
from trajkit.registry.served import ServedModel
from trajkit.stack import model_server

CONFIG = Path("litellm.yaml")
TEXT = """\
# the models of this team
model_list:
  - model_name: agent   # what the agent calls
    litellm_params:
      model: hosted_vllm/old
      api_base: http://127.0.0.1:8001/v1

litellm_settings:
  drop_params: true
"""
FT = "ft:gpt-4.1-mini-2025-04-14:org::abc"


@pytest.fixture(autouse=True)
def _config() -> None:
    CONFIG.write_text(TEXT)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No litellm is on the PATH."""
    monkeypatch.setattr("trajkit.registry.proxy_check.shutil.which", lambda _name: None)


@pytest.mark.usefixtures("nowhere")
def test_a_job_is_registered_shown_and_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    a_job(a_store("good", an_episode("e")))
    asked = ["register", "--config", str(CONFIG), "--server", "vllm"]
    assert run([*asked, "--dry-run"]) == 0
    assert CONFIG.read_text() == TEXT
    capsys.readouterr()
    assert run([*asked, "--yes"]) == 0
    printed = capsys.readouterr()
    assert "+  - model_name: tiny\n" in printed.out
    assert printed.out.endswith("litellm.yaml  tiny  registered  tiny\n")
    for words in (
        "gets no traffic",
        "litellm is not on the PATH",
        "vllm serve some/base",
        "must be restarted",
    ):
        assert words in printed.err
    entry = yaml.safe_load(CONFIG.read_text())["model_list"][-1]
    assert entry["litellm_params"] == {"model": "hosted_vllm/tiny", "api_base": "http://127.0.0.1:8000/v1/"}
    assert "# what the agent calls" in CONFIG.read_text()
    changed = CONFIG.read_text()
    assert run([*asked, "--yes"]) == 0
    assert "exists already" in capsys.readouterr().err
    assert CONFIG.read_text() == changed
    assert run(["lineage", "tiny"]) == 0
    assert "variant   tiny  in litellm.yaml  since" in capsys.readouterr().out
    assert run(["register", "--config", str(CONFIG), "--undo", "--yes"]) == 0
    assert "litellm.yaml  tiny  taken back" in capsys.readouterr().out
    assert CONFIG.read_text() == TEXT


@pytest.mark.usefixtures("nowhere")
def test_a_hosted_model_gets_a_name_of_its_own_and_the_place_of_its_key() -> None:
    asked = ["register", "--model", FT, "--config", str(CONFIG)]
    assert run([*asked, "--variant", "agent", "--yes"]) == 2  # it has traffic
    assert run([*asked, "--variant", "agent-sft", "--yes", "--json"]) == 0
    assert yaml.safe_load(CONFIG.read_text())["model_list"][-1] == {
        "model_name": "agent-sft",
        "litellm_params": {"model": f"openai/{FT}", "api_key": "os.environ/OPENAI_API_KEY"},
    }


@pytest.mark.parametrize(
    "option", [("--function", "act"), ("--template-variant", "baseline"), ("--traffic", "5%")]
)
def test_options_of_functions_are_refused(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["register", "--model", FT, "--config", str(CONFIG), *option, "--yes"]) == 2
    assert f"{option[0]} does not go with LiteLLM's configuration" in capsys.readouterr().err
    assert CONFIG.read_text() == TEXT


def test_a_proxy_that_refuses_keeps_the_old_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = folder / "bin" / "litellm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'ValueError: no such router'\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert run(["register", "--model", FT, "--config", str(CONFIG), "--variant", "x", "--yes"]) == 2
    assert "the proxy refuses the configuration: ValueError: no such router" in capsys.readouterr().err
    assert CONFIG.read_text() == TEXT


# -- the real proxy ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record.environment(tmp_path_factory.mktemp("litellm"))


@pytest.mark.full
def test_the_real_proxy_serves_it_and_names_the_keys_that_are_missing(python: Path) -> None:
    CONFIG.write_text(
        f"{TEXT}  callbacks: [nowhere.to_be_found]\ngeneral_settings:\n  database_url: postgresql://127.0.0.1:9/x\n"
    )
    model = ServedModel(name="n", model_name="n", api_base="http://box/v1", api_key_location="env::BOX_KEY")
    made = add_model(ProxyConfig.read(CONFIG), model, "new").configuration
    assert check_serves(made, str(python.with_name("litellm"))) == ("BOX_KEY",)


@pytest.mark.full
def test_before_and_after_are_measured_through_the_real_proxy(folder: Path, python: Path) -> None:
    """Two rule players stand for the model before and after training: one errs often, one does not."""
    (folder / "reasoner.py").write_text(EXAMPLES["reasoner"], encoding="utf-8")
    path = f"{python.parent}:{Path.cwd()}"
    with model_server.start(mistakes=0.9, invalid=0) as old, model_server.start(mistakes=0, invalid=0) as new:
        CONFIG.write_text(TEXT.replace("http://127.0.0.1:8001/v1", f"{old.url}/v1"))
        register = "trajkit register --model tuned --config litellm.yaml --yes --api-base"
        done = run_line(f"PATH=$PATH:{path} {register} {new.url}/v1", folder)
        assert done.returncode == 0, done.stdout
        assert "the proxy serves it" in done.stdout
        with record.proxy(python, folder / "proxy", CONFIG.read_text()) as url:
            done = run_line(
                "trajkit evaluate babyai --task goto --policy reasoner:act --variants agent,tuned"
                f" --model-url {url}/v1 --seeds 200:230 --max-steps 24 -o measured --yes --json 2>notes",
                folder,
                OPENAI_API_KEY=record.KEY,
            )
    assert done.returncode == 0, (done.stdout, (folder / "notes").read_text())
    found = json.loads(done.stdout)
    assert {one["n_episodes"] for one in found["groups"]} == {30}
    (success,) = [one for one in found["comparisons"] if one["metric"] == "success"]
    assert success["low"] > 0
