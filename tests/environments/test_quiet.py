from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading

import pytest

from trajkit.environments.quiet import kept_stdout, overheard, quiet

say = print  # what an environment does


def test_what_is_printed_inside_goes_to_stderr_and_nothing_stays_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout
    with quiet():
        say("inner")
        sys.stdout.write("written\n")
        with quiet():
            say("innermost")
        say("inner again")
    say("outer")

    assert capsys.readouterr() == ("outer\n", "inner\nwritten\ninnermost\ninner again\n")
    assert sys.stdout is before


def test_what_other_threads_print_meanwhile_stays_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_inside, is_printed = threading.Event(), threading.Event()

    def environment() -> None:
        with quiet():
            is_inside.set()
            assert is_printed.wait(10)
            say("from the environment")

    thread = threading.Thread(target=environment)
    thread.start()
    assert is_inside.wait(10)
    say("from the program")
    is_printed.set()
    thread.join()

    assert capsys.readouterr() == ("from the program\n", "from the environment\n")


def test_many_threads_leave_stdout_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout

    def environment() -> None:
        for _ in range(300):
            with quiet():
                say("x", end="")

    threads = [threading.Thread(target=environment) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sys.stdout is before
    assert capsys.readouterr() == ("", "x" * 2400)


def test_a_failure_inside_puts_stdout_back() -> None:
    before = sys.stdout
    with pytest.raises(ValueError, match="of the environment"), quiet():
        raise ValueError("of the environment")
    assert sys.stdout is before


def test_a_diversion_of_a_thread_that_outlives_ours_does_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    theirs = contextlib.redirect_stdout(io.StringIO())
    with quiet():
        theirs.__enter__()
    theirs.__exit__(None, None, None)  # puts back what stood there inside
    with quiet():
        say("inner")
    say("outer")
    sys.stdout = before

    assert capsys.readouterr() == ("outer\n", "inner\n")


def test_what_is_overheard_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    with overheard() as said, quiet():
        say("hello")
        for _ in range(5000):
            say("again")

    assert capsys.readouterr() == ("", "")
    assert "".join(said).startswith("hello\nagain\n")
    assert len(said) == 1000


PRINTS = """
import ctypes, os, subprocess, sys
from trajkit.environments.quiet import kept_stdout
print("before")
with kept_stdout():
    print("result")
    os.write(1, b"from the descriptor\\n")
    ctypes.CDLL(None).puts(b"from C")
    subprocess.run(["echo", "from a child"], check=True)
print("after")
"""


def test_stdout_is_kept_for_python_while_c_and_children_write_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True)

    assert done.stdout == "before\nresult\nafter\n"
    assert sorted(done.stderr.splitlines()) == ["from C", "from a child", "from the descriptor"]


def test_where_stdout_is_no_file_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    page = io.StringIO()
    monkeypatch.setattr(sys, "stdout", page)
    with kept_stdout():
        say("result")

    assert page.getvalue() == "result\n"
