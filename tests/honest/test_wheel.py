"""What pip installs works with nothing else: the wheel, in an environment that has only the core."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from tests.matrix import daily
from trajkit.commands.catalog import COMMANDS

ROOT = Path(__file__).parent.parent.parent
LARGEST_BYTES = 5_000_000


def run(narrow: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the narrow environment's trajkit in a folder of its own."""
    return subprocess.run(
        [str(narrow / "trajkit"), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_wheel_carries_the_samples_the_recipes_and_every_file_that_the_package_reads(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    carried = {
        "data/babyai-sample": "trajkit/_data/babyai-sample",
        "data/tiny-base": "trajkit/_data/tiny-base",
        "recipes/babyai": "trajkit/_data/recipes/babyai",
        "recipes/babyai_tools": "trajkit/_data/recipes/babyai_tools",
    }
    for folder, inside in carried.items():
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            assert f"{inside}/{path.relative_to(ROOT / folder).as_posix()}" in names
    recipes = {f"trajkit/_data/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.yaml")}
    assert len(recipes) > 1
    assert recipes <= names
    there = [path for path in (ROOT / "trajkit").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {".html", ".js", ".css", ".py", ".sql", ".typed"} - {path.suffix for path in there} == set()
    assert {path.relative_to(ROOT).as_posix() for path in there} <= names


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(archive.read(about), validate=True)
        licence = archive.read(about.replace("METADATA", "licenses/LICENSE"))
        scripts = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    assert metadata.license_expression == "Apache-2.0"
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata.description_content_type == "text/markdown"
    assert "trajkit = trajkit.cli.main:main" in scripts
    assert wheel.stat().st_size < LARGEST_BYTES
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "bench/"))]


@pytest.mark.full
def test_the_source_distribution_makes_the_same_wheel(wheel, sdist, rebuilt):
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(rebuilt) as theirs:
        checksums = [{each.filename: each.CRC for each in one.infolist()} for one in (ours, theirs)]
    assert checksums[0] == checksums[1]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "docs/architecture.md"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", ".trajkit", "dist/"))]


def test_every_command_explains_itself_with_only_the_core(narrow, tmp_path):
    """In one process: what an extra brings is nowhere in this environment, whatever ran before."""
    ask = (
        "import contextlib, io, json, sys\n"
        "from trajkit.cli.main import run\n"
        "said = {}\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        said[name] = [run([name, '--help']), out.getvalue()]\n"
        "print(json.dumps(said))"
    )
    done = subprocess.run(
        [narrow / "python", "-c", ask, json.dumps(list(COMMANDS))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name, (code, page) in json.loads(done.stdout).items():
        assert code == 0, name
        assert page.startswith(f"Usage: trajkit {name} "), page
    typed = run(narrow, tmp_path, "export", "--help")
    assert (typed.returncode, typed.stderr) == (0, "")
    assert typed.stdout.startswith("Usage: trajkit export ")


@pytest.mark.full
def test_the_sample_is_described_and_answers_a_query_with_only_the_core(narrow, tmp_path):
    manifest = json.loads((ROOT / "data" / "babyai-sample" / "manifest.json").read_text(encoding="utf-8"))
    done = run(narrow, tmp_path, "info", "sample:babyai", "--json")
    assert done.returncode == 0, done.stderr
    assert manifest["digest"] in done.stdout
    done = run(narrow, tmp_path, "query", "sample:babyai", "select count(*) as n from episodes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"n": manifest["counts"]["n_episodes"]}


def test_the_sample_is_shown_counted_and_converted_with_only_the_core(narrow, tmp_path):
    chosen = ("--where", "purpose = 'train'", "-o", "train.jsonl")
    for arguments in (
        ("show", "sample:babyai", "0"),
        ("stats", "sample:babyai"),
        ("convert", "sample:babyai", "--to", "openai-sft", *chosen),
    ):
        done = run(narrow, tmp_path, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    first = (tmp_path / "train.jsonl").read_text(encoding="utf-8").partition("\n")[0]
    assert json.loads(first)["messages"][-1]["role"] == "assistant"


def test_the_doctor_is_content_with_only_the_core(narrow, tmp_path):
    done = run(narrow, tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = [each for each in json.loads(done.stdout)["sections"] if each["name"] == "packages"]
    notes = {each["name"]: each["todo"] for each in packages["checks"] if each["standing"] == "note"}
    assert notes["local"] == "pip install 'trajkit[local]'"
    assert "core" not in notes


@pytest.mark.parametrize(
    ("arguments", "extra"),
    daily(
        [
            (("up",), "stack"),
            (("rollout", "babyai", "--policy", "expert", "--episodes", "1"), "babyai"),
            (
                ("export", "--source", "http://user:secret@127.0.0.1:1/tensorzero", "--metric", "x"),
                "clickhouse",
            ),
        ],
        1,
    ),
    ids=["up", "rollout", "export"],
)
def test_a_missing_extra_exits_3_and_says_what_to_install(narrow, tmp_path, arguments, extra):
    done = run(narrow, tmp_path, *arguments)
    assert done.returncode == 3, done.stderr
    assert f"pip install 'trajkit[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""
