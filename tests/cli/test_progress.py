from __future__ import annotations

import re

import pytest

from trajkit._core.output import console


def test_a_log_gets_a_line_with_the_time_that_is_left(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_LOGGED_EVERY_S", 0.0)
    clock = iter([0.0, 10.0, 40.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.opened(), console.Meter() as meter:
        meter.show("loss 0.5", 100, 400)  # a training that goes on: what was done before took no time
        meter.show("loss 0.4", 200, 400)
    first, second = capfd.readouterr().err.splitlines()
    assert first == "loss 0.5  100 of 400"
    assert re.fullmatch(r"loss 0\.4  200 of 400, about 0:01:00 left", second)


def test_a_log_gets_no_line_before_half_a_minute(capfd: pytest.CaptureFixture[str]) -> None:
    with console.opened(), console.Meter() as meter:
        meter.show("writing", 1, 2)
    assert capfd.readouterr().err == ""
