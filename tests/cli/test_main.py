from __future__ import annotations

import os
import subprocess
import sys

import pytest

import trajkit
from tests import warm
from trajkit import errors
from trajkit.cli.main import run
from trajkit.commands.catalog import COMMANDS


def test_help_lists_every_command_on_stdout(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    jobs = shown.out.partition("--help")[2].split("\n\n")[1:]
    listed = [line.split()[0] for job in jobs for line in job.splitlines()[1:] if line[2:3].strip()]
    assert listed == list(COMMANDS)


def test_a_command_that_does_not_exist_is_a_wrong_request(capsys):
    assert run(["levitate"]) == 2
    shown = capsys.readouterr()
    assert "No such command 'levitate'" in shown.err
    assert shown.out == ""
    assert run(["exprot"]) == 2
    assert "No such command 'exprot'. Did you mean 'export'?" in capsys.readouterr().err


@pytest.mark.parametrize("place", [["--version"], ["-V"], ["select", "-V"]])
def test_the_version_is_told_everywhere(place, capsys):
    assert run(place) == 0
    assert capsys.readouterr().out == f"trajkit, version {trajkit.__version__}\n"


@pytest.mark.parametrize("arguments", [["-q", "split"], ["split", "-q"]])
def test_quiet_leaves_out_notes_in_every_place(arguments, capsys):
    assert run([*arguments, "sample:babyai", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "train" in shown.out


def test_an_error_is_a_line_and_a_hint(capsys):
    assert run(["info", "nowhere"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("hint: ")


def test_a_long_argument_is_searched_for_passwords_in_a_moment():
    """A pattern with a free beginning took 60 s for these 90,000 letters."""
    command = [sys.executable, "-m", "trajkit", "info", "x" * 90_000]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1


def test_debug_shows_the_traceback(folder):
    done = warm.trajkit(["--debug", "info", "nowhere"], folder, dict(os.environ))
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "StoreError" in done.stderr


def test_a_reader_that_goes_away_is_not_an_error():
    program = f"{sys.executable} -m trajkit rollout --help | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program}"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "Usage: trajkit rollout [OPTIONS] ENVIRONMENT\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StoreError, 1),
        (errors.NothingMatched, 1),
        (errors.RequestError, 2),
        (errors.ConfigError, 2),
        (errors.QueryError, 2),
        (errors.MissingExtra, 3),
        (errors.ServiceError, 4),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error, code):
    assert error("it was wrong", hint="do that").exit_code == code
    assert str(error("it was wrong", hint="do that")) == "it was wrong (do that)"


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["weight", "sample:babyai", "--dry-run"], "Missing option '--scheme'"),
        (["info", "--levitate"], "No such option"),
        (["check-env"], "Missing argument 'ENVIRONMENT'"),
    ],
)
def test_a_command_names_what_it_lacks_or_does_not_know(
    arguments: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert missing in capsys.readouterr().err
