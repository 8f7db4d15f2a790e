"""A package outside brings a source of its own by an entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajkit.errors import RequestError
from trajkit.sources.catalog import OWN, source_named, source_names

MODULE = """
import json
from datetime import datetime, timezone
from pathlib import Path

from trajkit.formats.chat.conversation import conversation_of
from trajkit.formats.reading.document import BadDocument
from trajkit.sources.calls import Call, Session, found_of
from trajkit.sources.files.found import Found
from trajkit.sources.source import FIELDS, KEPT, LOST, Source


def read(place, wish):
    for number, line in enumerate(Path(place).read_text().splitlines(), 1):
        try:
            prompt, answer = json.loads(line)
        except ValueError:
            yield Found(f"{place}:{number}", problem=BadDocument("not JSON", f"line {number}", line).problem)
            continue
        one, two = conversation_of(
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        )
        start = datetime(2026, 1, number, tzinfo=timezone.utc)
        calls = [Call(call_id=f"c{number}", prompt=[one], answer=two, started_at=start)]
        yield found_of(Session(session_id=f"s{number}", source="ledger", calls=calls), f"{place}:{number}")


SOURCE = Source(
    name="ledger",
    about="our own log of calls",
    read=read,
    recognises=lambda place: place.endswith(".ledger"),
    fidelity={name: KEPT if name in ("session", "prompt", "answer", "time") else LOST for name in FIELDS},
)
"""

SUITE = """
from ledger import SOURCE
from trajkit.testing import SourceContract


class TestLedger(SourceContract):
    source = SOURCE
    place = "log.ledger"
    n_episodes = 2
    n_steps = 2
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "ledger.py").write_text(MODULE)
    info = tmp_path / "ledger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ledger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trajkit.sources]\nledger = ledger:SOURCE\n")
    lines = [json.dumps([f"ask {number}", f"answer {number}"]) for number in (1, 2)]
    (tmp_path / "log.ledger").write_text("\n".join(lines) + "\n")
    return tmp_path


def _python(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=package,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_package_offers_a_source_and_the_contract_tests_it(package: Path) -> None:
    done = _python(package, "-m", "trajkit", "import", "log.ledger", "-o", "store", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["format"], report["n_episodes"]) == ("ledger", 2)
    assert report["missing"] == {"no score": 2}
    (package / "test_ledger.py").write_text(SUITE)
    suite = _python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ledger.py")
    assert suite.returncode == 0, suite.stdout
    assert "8 passed" in suite.stdout


@pytest.mark.full
def test_a_wrong_source_fails_its_contract(package: Path) -> None:
    wrong = MODULE.replace('("session", "prompt", "answer", "time")', '("session", "prompt", "cost")')
    (package / "ledger.py").write_text(wrong)
    (package / "test_ledger.py").write_text(SUITE)
    suite = _python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ledger.py")
    assert suite.returncode == 1
    assert "cost is said to be kept, and is not there" in suite.stdout
    assert "answer is said to be lost, and is there" in suite.stdout


def test_an_unknown_source_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RequestError) as caught:
        source_named("nothing-like-it")
    assert all(name in str(caught.value.hint) for name in source_names())


@pytest.mark.parametrize("name", OWN)
def test_a_source_of_trajkit_has_its_name_and_an_about(name: str) -> None:
    source = source_named(name)
    assert source.name == name
    assert source.about
