"""`trajkit redact`, as a user types it."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes

MAIL = "joe.doe@corp.io"

# what betterleaks and gitleaks do with standard input, with one rule
SCANNER = """#!/usr/bin/env python3
import json, sys
options = dict(zip(sys.argv, sys.argv[1:] + [""]))
found = [{"RuleID": "a-rule", "Secret": "REDACTED"} for line in sys.stdin if "left over" in line]
if "--no-banner" not in sys.argv or sys.argv[1] != "stdin":
    sys.exit("unknown command")
with open(options["--report-path"], "w") as file:
    json.dump(found, file)
sys.exit(int(options["--exit-code"]) if found else 0)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    step = Transition(
        step_index=0,
        messages=(message("user", f"I am {MAIL}, customer C-123456, left over"),),
        completion=message("assistant", f"Hello {MAIL}"),
    )
    write_episodes(Path("store"), [Episode(episode_id="e", source="test", steps=(step,))], kind="test")
    return "store"


def scanner(name: str, text: str = SCANNER) -> None:
    program = Path("bin") / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(text.replace("/usr/bin/env python3", sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)


def test_a_new_store_is_written_and_no_value_is_printed(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["redact", store, "-o", "clean", "--pattern", "customer=C-[0-9]{6}"]) == 0
    printed = capsys.readouterr()
    assert "steps.messages" in printed.out
    assert printed.out.splitlines()[-1].startswith("clean  1 episode  1 step  digest ")
    assert "found: 3" in printed.err
    assert MAIL not in printed.out + printed.err
    assert "123456" not in printed.out + printed.err
    assert run(["redact", "--dry-run", "--json"]) == 0  # the last store is the new one
    assert json.loads(capsys.readouterr().out)["report"]["found"] == []


def test_a_dry_run_counts_and_writes_nothing(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("patterns").write_text("# of ours\n\ncustomer = C-[0-9]{6}\n")
    asked = ["redact", store, "--dry-run", "--json", "--pattern-file", "patterns", "--skip", "email"]
    assert run(asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["store"] is None
    assert said["report"]["found"] == [
        {"kind": "customer", "place": "steps.messages", "n_found": 1, "n_values": 1}
    ]
    assert not list(Path.cwd().glob("stores/*"))


def test_a_line_that_is_no_pattern_is_named_and_not_shown(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("patterns").write_text("customer=C-[0-9]{6}\ns3cret\n")
    assert run(["redact", store, "--dry-run", "--pattern-file", "patterns"]) == 2
    printed = capsys.readouterr().err
    assert "patterns line 2 is not NAME=REGEX" in printed
    assert "s3cret" not in printed


@pytest.mark.parametrize("name", daily(["betterleaks", "gitleaks"], 1))
def test_a_scanner_on_the_path_has_the_last_word(
    store: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    scanner(name)
    assert run(["redact", store, "-o", "clean"]) == 1
    assert f"{name}: it still finds a-rule 1" in capsys.readouterr().err
    assert run(["redact", store, "-o", "cleaner", "--pattern", "rest=left over"]) == 0
    assert f"{name}: nothing found" in capsys.readouterr().err
    assert run(["redact", store, "-o", "unasked", "--no-gate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"] is None


def test_a_scanner_that_fails_says_why(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    scanner("gitleaks", "#!/usr/bin/env python3\nimport sys\nsys.exit('no such flag')\n")
    assert run(["redact", store, "-o", "clean"]) == 2
    assert "gitleaks failed with 1: no such flag" in capsys.readouterr().err
