"""Record results with two versions of verifiers: `python -m tests.sources.verifiers.record FOLDER [--keep]`.

Their environments are made in FOLDER. `rows.jsonl.gz` and `metadata.json` are of a real evaluation with
verifiers 0.1.14; `graph.jsonl.gz` and `traces.jsonl` have the graph of verifiers 0.4.0.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sources import thirty

DATA = Path(__file__).parents[2] / "data" / "sources" / "verifiers"
VERSIONS = {"rows": "verifiers==0.1.14", "graph": "verifiers==0.4.0"}
_HERE = Path(__file__).parent


def record(folder: Path, out: Path) -> list[thirty.Played]:
    """Play with both and write; what was played, which is the same."""
    out.mkdir(parents=True, exist_ok=True)
    played = []
    for kind, package in VERSIONS.items():
        made = folder / f"made-{kind}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        played = _play(_python(folder / kind, package), kind, made)
        if kind == "rows":
            lines = b"".join(path.read_bytes() for path in sorted(made.glob("babyai-*/results.jsonl")))
            facts = json.loads((made / "babyai-000" / "metadata.json").read_text(encoding="utf-8"))
            facts = {name: item for name, item in facts.items() if name not in ("path_to_save", "base_url")}
            (out / "metadata.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        else:
            every = (made / "traces.jsonl").read_bytes().splitlines(keepends=True)
            lines = b"".join(every[:-1])
            (out / "traces.jsonl").write_bytes(every[-1])
        with gzip.GzipFile(out / f"{kind}.jsonl.gz", "wb", mtime=0) as file:
            file.write(lines)
    return played


def _python(environment: Path, package: str) -> Path:
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
    return python


def _play(python: Path, kind: str, made: Path) -> list[thirty.Played]:
    with thirty.Answers() as answers:
        command = [python, _HERE / f"client_{kind}.py", answers.url, made]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        tell = _teller(child)

        @contextmanager
        def episode(name: str) -> Iterator[thirty.Ask]:
            yield lambda messages, tools: tell({"name": name, "messages": messages, "tools": tools})

        played = thirty.play(answers, episode, lambda name, value: tell({"end": name, "value": value}))
        if kind == "graph":
            for said in (
                {"content": "2", "reasoning_content": "One and one."},
                {"content": "Yes."},
                {"content": "Right."},
            ):
                answers.put({"role": "assistant", **said})
            tell({"two agents": True})
        _, said_wrong = child.communicate()
        assert child.returncode == 0, said_wrong
    return played


def _teller(child: subprocess.Popen[str]) -> Callable[[dict[str, Any]], None]:
    assert child.stdin is not None
    assert child.stdout is not None
    to, back = child.stdin, child.stdout

    def tell(value: dict[str, Any]) -> None:
        to.write(json.dumps(value) + "\n")
        to.flush()
        answer = back.readline()
        assert answer == "ok\n", answer + (child.stderr.read() if child.stderr is not None else "")

    return tell


if __name__ == "__main__":
    record(Path(sys.argv[1]), DATA if "--keep" in sys.argv else Path(sys.argv[1]) / "out")
