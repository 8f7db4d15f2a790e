"""Record results with two versions of verifiers: `python -m tests.sources.verifiers.record FOLDER [--keep]`.

Their environments are made in FOLDER. `rows.jsonl.gz` and `metadata.json` are of a real evaluation with
verifiers 0.1.14; `graph.jsonl.gz` and `traces.jsonl` have the graph of verifiers 0.4.0.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from tests.sources import foreign, thirty

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
        played = _play(foreign.environment(folder / kind, [package]), kind, made)
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


def _play(python: Path, kind: str, made: Path) -> list[thirty.Played]:
    with (
        thirty.Answers() as answers,
        foreign.client(python, _HERE / f"client_{kind}.py", None, answers.url, made) as tell,
    ):
        played = thirty.play(
            answers,
            lambda name: nullcontext(
                lambda messages, tools: tell({"name": name, "messages": messages, "tools": tools})
            ),
            lambda name, value: tell({"end": name, "value": value}),
        )
        if kind == "graph":
            for said in (
                {"content": "2", "reasoning_content": "One and one."},
                {"content": "Yes."},
                {"content": "Right."},
            ):
                answers.put({"role": "assistant", **said})
            tell({"two agents": True})
    return played


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    record(folder, DATA if "--keep" in sys.argv else folder / "out")
