"""`trajkit doctor`: good and bad set-ups, each told with what to do, and never a secret."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import trajkit
from tests.cli.jobs import a_job, a_store, an_episode
from tests.cli.terminal import plain, seen
from tests.cli.test_secrets import listening
from tests.pages import printed
from tests.publishing.hub_standin import READ_TOKEN, Fault, hub_standin
from trajkit._core.settings import remember
from trajkit.cli.main import run
from trajkit.commands.checkup.check import Check, Checkup, Standing
from trajkit.commands.checkup.folder import jobs, recipe_runs, stores
from trajkit.commands.checkup.package import PURPOSES
from trajkit.commands.checkup.service import gateway, hub, local_stack
from trajkit.commands.checkup.setting import settings, source_folder
from trajkit.commands.recipe.folder import RunFolder, StepRecord, StepStatus
from trajkit.commands.recipe.load import load
from trajkit.stack.process import Process, birth_of
from trajkit.stack.state import LocalStack, ModelServer, state_path, write_state
from trajkit.training.job import JobStatus
from trajkit.training.runs import Runs

ROOT = Path(__file__).parents[2]
PASSWORD = "open-sesame"
GONE = Process(pid=2**22 + 7, birth="never", started_at=datetime.now(UTC))
_READ = ("TENSORZERO_", "OPENAI_", "HF_", "TOGETHER_", "FIREWORKS_", "AZURE_", "JAVA_HOME", "NO_COLOR")


@pytest.fixture(autouse=True)
def folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, and an environment that names nothing."""
    for name in [name for name in os.environ if name.startswith(_READ)]:
        monkeypatch.delenv(name)
    return folder


def one(found: Any, name: str) -> Check:
    """The only check of this name."""
    (check,) = [check for check in found if check.name == name]
    return check


# -- the whole ----------------------------------------------------------------------------------------------


def test_a_fresh_folder_is_well_and_json_has_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("is_well") is True
    found = Checkup.model_validate(document)
    assert found.n_broken == 0
    assert found.to_json() == {"is_well": True, **document}
    assert str(found).startswith(f"trajkit {trajkit.__version__} in {Path.cwd()}\n\nmachine\n  ")
    assert str(found) in html.unescape(found._repr_html_())
    sections = {section.name: section.checks for section in found.sections}
    assert list(sections) == ["machine", "packages", "programs", "settings", "services", "folder"]
    assert one(sections["machine"], "Python").facts["version"] == sys.version.split()[0]
    threads: Any = one(sections["machine"], "processor").facts
    assert 0 < threads["n_usable"] <= threads["n_threads"] == os.cpu_count()
    core: Any = one(sections["packages"], "core").facts["packages"]
    assert {"click", "duckdb", "pyarrow"} <= core.keys()
    local: Any = one(sections["packages"], "local").facts["packages"]
    serve: Any = one(sections["packages"], "serve").facts["packages"]
    assert local["torch"]
    assert local.items() < serve.items()  # it names the other one
    assert {check.name for check in sections["packages"]} <= {"trajkit", "core", *PURPOSES}


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"].keys() - {"all", "dev"} == PURPOSES.keys()


def test_what_is_broken_ends_with_1_and_shows_no_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("trajkit.toml").write_text("storse = 1\n")
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", f"http://me:{PASSWORD}@127.0.0.1:1/tensorzero")
    monkeypatch.setenv("TENSORZERO_POSTGRES_URL", f"postgresql://me:{PASSWORD}@127.0.0.1:1/tensorzero")
    monkeypatch.setenv("TENSORZERO_GATEWAY_URL", f"http://me:{PASSWORD}@127.0.0.1:1")
    monkeypatch.setenv("OPENAI_API_KEY", PASSWORD)
    assert run(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert PASSWORD not in printed
    assert "\x1b" not in printed
    lines = printed.splitlines()
    assert "  ✓ OPENAI_API_KEY   is set: OpenAI, and models behind its API" in lines
    assert "  · environment      both databases are named; ClickHouse is read" in lines
    assert "                     unset TENSORZERO_POSTGRES_URL" in lines
    unknown = [line for line in lines if "storse" in line]
    assert unknown == [f"  ✗ trajkit.toml     {folder}/trajkit.toml: storse: Extra inputs are not permitted"]
    text = " ".join(printed.split())
    assert "nothing answers at http://127.0.0.1:1/tensorzero: Connection refused" in text
    assert "nothing answers at postgresql://127.0.0.1:1/tensorzero: Connection refused" in text
    assert "✗ TENSORZERO_GATEWAY_URL no gateway answers at http://127.0.0.1:1: " in text
    assert "correct it: export TENSORZERO_GATEWAY_URL=…" in text
    assert lines[-1].startswith("4 things do not work; ")


@pytest.mark.full
def test_on_a_terminal_it_is_coloured_and_no_wider(folder: Path) -> None:
    printed = seen(["doctor"], columns=80, folder=folder)
    assert "\x1b[32m\x1b[1m✓\x1b[0m" in printed
    lines = plain(printed).splitlines()
    assert lines[0] == f"trajkit 0.1.0 in {folder}"
    # commands are whole, so that they can be copied
    assert max(len(line) for line in lines[1:] if not line.startswith(" " * 21)) <= 80
    assert lines[-1].startswith("all that is configured works; ")


# -- packages -----------------------------------------------------------------------------------------------

_PACKAGES = """
import json, sys
from trajkit.commands.checkup.package import packages
print(json.dumps([check.model_dump(mode="json") for check in packages()]))
"""


def test_versions_that_do_not_go_together_are_told(folder: Path) -> None:
    """Metadata of older packages, found first: what an older installation looks like."""
    for name, version in {"polars": "0.1", "llguidance": "0.1", "numpy": "1.0"}.items():
        about = folder / "older" / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    done = subprocess.run(
        [sys.executable, "-c", _PACKAGES],
        env={**os.environ, "PYTHONPATH": f"{folder / 'older'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [Check.model_validate(each) for each in json.loads(done.stdout)]
    polars = one(found, "polars")
    assert (polars.standing, polars.text) == (
        Standing.BROKEN,
        "polars is 0.1, and trajkit needs >=2.0",
    )
    assert polars.todo == "pip install 'trajkit[polars]'"
    assert "llguidance is 0.1, and trajkit needs >=1.9" in one(found, "serve").text
    assert "numpy is 1.0, and gymnasium needs" in one(found, "gymnasium").text  # what an extra brings
    assert one(found, "core").text.startswith("numpy is 1.0, and trajkit needs >=1.26")


# -- settings -----------------------------------------------------------------------------------------------


def test_values_of_the_project_file_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ROOT / "recipes" / "babyai" / "tensorzero.toml"
    written = Path("trajkit.toml")
    written.write_text(f'config = "{config}"\nfunction = "act"\nmodel = "openai::gpt-4.1-mini"\n')
    found = list(settings())
    assert one(found, "config").facts["metrics"] == ["episode_return", "progression"]
    assert one(found, "model").standing == Standing.BROKEN
    assert one(found, "model").todo == "export OPENAI_API_KEY=…"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert one(settings(), "model").standing == Standing.WELL
    written.write_text(f'config = "{config}"\nfunction = "move"\n')
    assert one(settings(), "function").todo == "functions: act"
    written.write_text('config = "nowhere.toml"\n')
    assert one(settings(), "config").text == "there is no nowhere.toml"


def test_a_file_further_up_is_told_apart(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    reserved = '[[reserved]]\nenv = "babyai"\ntasks = ["goto"]\nseeds = "0:5"\n'
    Path("trajkit.toml").write_text(f'function = "act"\n{reserved}')
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    check = one(settings(), "trajkit.toml")
    assert check.standing == Standing.NOTE
    assert check.text.endswith("1 reserved for evaluation; function hold in that folder only")
    (folder / "trajkit.toml").write_text(reserved)
    assert one(settings(), "trajkit.toml").standing == Standing.WELL


def test_variables_are_told_by_name_and_odd_values_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{PASSWORD}\n")
    monkeypatch.setenv("TOGETHER_API_KEY", "")
    monkeypatch.setenv("TENSORZERO_CLICKHOSE_URL", PASSWORD)
    found = list(settings())
    assert one(found, "HF_TOKEN").standing == Standing.BROKEN
    assert one(found, "TOGETHER_API_KEY").text == "is set but empty, which counts as not set"
    assert (one(found, "TENSORZERO_CLICKHOSE_URL").todo or "").startswith(
        "nearest: TENSORZERO_CLICKHOUSE_URL,"
    )
    assert PASSWORD not in "".join(check.model_dump_json() for check in found)


def test_a_password_in_the_project_file_is_noted() -> None:
    Path("trajkit.toml").write_text(f'source = "http://me:{PASSWORD}@127.0.0.1:8123/tensorzero"\n')
    found = list(settings())
    assert one(found, "source").text == "the URL in the file holds a password"
    assert PASSWORD not in "".join(check.model_dump_json() for check in found)


def test_a_source_that_is_a_folder_is_opened() -> None:
    Path("trajkit.toml").write_text('source = "mine"\n')
    assert one(source_folder(), "source").todo == "correct `source` in trajkit.toml"
    a_store("mine", an_episode("a"), an_episode("b"))
    assert one(source_folder(), "source").text == "mine is a store of 2 episodes"


# -- services -----------------------------------------------------------------------------------------------


def a_stack(process: Process, *, server: ModelServer | None = None) -> None:
    """The state that `trajkit up` leaves."""
    write_state(
        LocalStack.model_validate(
            {
                "clickhouse_url": SecretStr(f"http://trajkit:{PASSWORD}@127.0.0.1:1/tensorzero"),
                "clickhouse": process,
                "data_folder": Path("data").absolute(),
                "config_file": Path("config/tensorzero.toml"),
                "config_source": Path("tensorzero.toml"),
                "model": None,
                "model_server": server,
            }
        )
    )


def test_a_stack_that_has_ended_says_how_to_start_and_to_forget_it() -> None:
    a_stack(GONE, server=ModelServer(url="http://127.0.0.1:1", mistakes=0.2, process=GONE))
    found = list(local_stack())
    stack = one(found, "local stack")
    assert (stack.standing, stack.todo) == (
        Standing.BROKEN,
        "trajkit up starts it on the same data, trajkit down forgets it",
    )
    assert stack.text.startswith(f"ClickHouse (process {GONE.pid}) has ended; its data is in ")
    assert one(found, "model server").standing == Standing.BROKEN


def test_a_stack_whose_services_do_not_answer_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = Process(pid=os.getpid(), birth=birth_of(os.getpid()) or "", started_at=datetime.now(UTC))
    a_stack(alive, server=ModelServer(url="http://127.0.0.1:1", mistakes=0.2, process=alive))
    monkeypatch.setenv("TENSORZERO_GATEWAY_URL", "http://127.0.0.1:1")
    stack, server, instead = local_stack()
    assert stack.text.startswith("no ClickHouse runs on ")
    assert server.text == "nothing answers at http://127.0.0.1:1: Connection refused"
    assert instead.todo == "unset TENSORZERO_GATEWAY_URL"


def test_a_damaged_state_file_is_told_without_what_it_holds() -> None:
    state_path().parent.mkdir()
    state_path().write_text(json.dumps({"clickhouse_url": PASSWORD}))
    check = one(local_stack(), "local stack")
    assert check.standing == Standing.BROKEN
    assert "trajkit up" in (check.todo or "")
    assert PASSWORD not in check.model_dump_json()


@pytest.mark.parametrize(
    ("status", "standing", "words"),
    [
        (200, Standing.WELL, "answers"),
        (404, Standing.BROKEN, "is not a TensorZero gateway"),
        (503, Standing.BROKEN, 'is not well (503): {"clickhouse": "error"}'),
    ],
)
def test_a_gateway_is_asked_how_it_is(
    monkeypatch: pytest.MonkeyPatch, status: int, standing: Standing, words: str
) -> None:
    assert gateway() is None
    with listening(lambda path, key: (status, '{"clickhouse":\n "error"}')) as url:
        monkeypatch.setenv("TENSORZERO_GATEWAY_URL", url)
        check = gateway()
    assert check is not None
    assert check.standing == standing
    assert words in check.text


def test_the_hub_is_asked_whose_token_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_standin() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", READ_TOKEN)
        check = hub()
        assert check.standing == Standing.NOTE
        assert check.text == f"{running.url} accepts the token of tester, which may read"
    assert hub().text == f"nothing answers at {running.url}: Connection refused"
    with listening(lambda path, key: (401, "{}")) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        refused = hub()
        assert (refused.standing, refused.todo) == (Standing.BROKEN, "hf auth login, or export HF_TOKEN=…")
        assert READ_TOKEN not in refused.model_dump_json()
        monkeypatch.delenv("HF_TOKEN")
        assert hub().standing == Standing.NOTE


def test_a_redirect_takes_no_token_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_standin() as stranger, hub_standin() as running:
        moved = {"Location": f"{stranger.url}/api/whoami-v2"}
        running.faults.append(Fault("GET", "/api/whoami-v2", status=302, headers=moved))
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", READ_TOKEN)
        assert hub().standing == Standing.BROKEN
        assert stranger.requests == []


# -- the folder ---------------------------------------------------------------------------------------------


def test_stores_are_opened_and_what_is_half_written_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))  # others leave things in the usual one
    a_store("stores/whole", an_episode("a"))
    damaged = a_store("stores/split/train", an_episode("b"))
    (damaged / "steps" / "part-00000.parquet").write_bytes(b"")
    Path(f".mine.{GONE.pid}.0a1b2c3d.tmp").mkdir()
    Path(f".written.{os.getpid()}.0a1b2c3d.tmp").mkdir()
    remember("last_store", {"path": str(folder / "gone")})
    found = list(stores())
    assert one(found, "stores").text.startswith("1 in stores, 0.0 MB")
    assert "has 0 bytes" in one(found, "store").text
    assert one(found, "last store").standing == Standing.NOTE
    assert one(found, "left over").todo == f"rm -r .mine.{GONE.pid}.0a1b2c3d.tmp"


def test_jobs_that_failed_or_were_cut_off_say_how_to_go_on() -> None:
    store = a_store("stores/one", an_episode("a"))
    a_job(store, job_id="done")
    a_job(store, job_id="cut", status=JobStatus.RUNNING, process=GONE)
    a_job(store, job_id="bad luck", status=JobStatus.FAILED, error="out of\nmemory")
    a_job(store, job_id="there", model="gpt", status=JobStatus.RUNNING)
    damaged = Runs(Path("runs")).path("damaged")
    damaged.mkdir()
    (damaged / "job.json").write_text("{")
    found = list(jobs())
    assert one(found, "jobs").facts == {"n_jobs": 1}
    assert one(found, "job cut").todo == "trajkit jobs resume cut"
    assert one(found, "job bad luck").text == "failed: out of memory"
    assert one(found, "job bad luck").todo == "trajkit jobs resume 'bad luck'"
    assert one(found, "job there").todo == "trajkit jobs show there"
    assert one(found, "job damaged").standing == Standing.BROKEN


def test_a_run_of_a_recipe_says_how_far_it_is_and_how_to_go_on() -> None:
    loaded = load("babyai_variants", {})
    folder = RunFolder(Path("out"))
    folder.begin(loaded)
    first, second, *_ = loaded.recipe.steps
    began = {"verb": "up", "arguments": (), "started_at": datetime.now(UTC)}
    folder.save(StepRecord.model_validate({**began, "name": first, "status": StepStatus.DONE}))
    folder.save(
        StepRecord.model_validate(
            {**began, "name": second, "status": StepStatus.FAILED, "error": "no ClickHouse"}
        )
    )
    check = one(recipe_runs(), "run out")
    n = len(loaded.recipe.steps)
    assert check.text == f"babyai_variants: 1 of {n} steps are done; {second} failed: no ClickHouse"
    assert check.todo == f"trajkit run {loaded.located.path} -o out"
    for name in loaded.recipe.steps:
        folder.save(StepRecord.model_validate({**began, "name": name, "status": StepStatus.DONE}))
    assert one(recipe_runs(), "run out").standing == Standing.WELL


@pytest.mark.full
def test_the_page_prints_what_is_shown(folder: Path) -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert len(printed(page, folder)) == 1
