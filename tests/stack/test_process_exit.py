"""A service that outlives the command that started it: nothing is said about that when the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
from pathlib import Path
from trajkit.stack.process import start_module
process, _ = start_module(
    "http.server", ["0", "--bind", "127.0.0.1"], log=Path(sys.argv[1]), is_ready=lambda _: True, what="it"
)
print(process.pid)
"""


def test_a_service_may_outlive_its_starter_in_silence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _CODE, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr == ""
