"""Record traces with the real OpenAI Agents SDK: `python -m tests.sources.openai_agents.record FOLDER`.

The SDK's environment is made in FOLDER. It writes `thirty.jsonl.gz`, `played.json.gz` and `agents.jsonl` to
FOLDER/out, or with --keep to tests/data. Recorded with openai-agents 0.24.0.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sources import thirty

DATA = Path(__file__).parents[2] / "data" / "sources" / "openai_agents"
PACKAGE = "openai-agents==0.24.0"
_HERE = Path(__file__).parent


def record(folder: Path, out: Path) -> list[thirty.Played]:
    """Play and write; what was played."""
    environment = folder / "environment"
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
    out.mkdir(parents=True, exist_ok=True)
    with thirty.Answers() as answers:
        command = [python, _HERE / "client.py", answers.url, out / "thirty.jsonl", out / "agents.jsonl"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        assert child.stdout is not None

        def tell(value: dict[str, Any]) -> None:
            child.stdin.write(json.dumps(value) + "\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            assert child.stdout.readline() == "ok\n"  # type: ignore[union-attr]

        @contextmanager
        def episode(name: str) -> Iterator[thirty.Ask]:
            yield lambda messages, tools: tell({"name": name, "messages": messages})
            tell({"end": name})

        played = thirty.play(answers, episode, lambda _name, _value: None)
        child.stdin.close()
        assert child.wait(60) == 0
    whole = out / "thirty.jsonl"
    with gzip.GzipFile(out / "thirty.jsonl.gz", "wb", mtime=0) as file:
        file.write(whole.read_bytes())
    whole.unlink()
    return played


if __name__ == "__main__":
    record(Path(sys.argv[1]), DATA if "--keep" in sys.argv else Path(sys.argv[1]) / "out")
