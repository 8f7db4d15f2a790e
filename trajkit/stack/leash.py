"""Run a command that must not outlive the process that started it, however that process ends.

`python -m trajkit.stack.leash FOLDER COMMAND...` runs the command in the folder. It ends the command when the
other end of its standard input is closed, also because that process was killed, or at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(folder: str, *command: str) -> int:
    """Run the command, and return its exit code."""
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())

    def wait_for_the_end_of_input() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock would be held when this process ends
            pass
        child.terminate()

    threading.Thread(target=wait_for_the_end_of_input, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
