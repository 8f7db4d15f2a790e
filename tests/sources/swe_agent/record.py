"""Record a run of the real mini-swe-agent: `python -m tests.sources.swe_agent.record FOLDER [--keep]`.

The agent's environment is made in FOLDER; the run is written to FOLDER/out, or with --keep to tests/data.
Recorded with mini-swe-agent 2.4.6. The report of SWE-bench beside it is written by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.sources import foreign, thirty

DATA = Path(__file__).parents[2] / "data" / "sources" / "swe_agent" / "mini"
PACKAGE = "mini-swe-agent==2.4.6"
_HERE = Path(__file__).parent
_OUTPUTS = {"repo__1": ["a.py", "fixed", "submit"], "repo__2": ["nothing", "nothing", "nothing"]}


def _answer(text: str, number: int, command: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": text}
    if command is not None:
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        answer["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    return answer


def record(folder: Path, out: Path) -> None:
    """Play and write."""
    python = foreign.environment(folder / "environment", [PACKAGE])
    out.mkdir(parents=True, exist_ok=True)
    said = [("I look.", "ls"), ("I fix it.", "sed -i s/a/b/ a.py"), ("I am done.", "submit")]
    said += [("I forget to call.", None), ("I look.", "ls"), ("Again.", "ls"), ("And again.", "ls")]
    with thirty.Answers() as answers:
        for number, (text, command) in enumerate(said):
            answers.put(_answer(text, number, command))
        command = [python, _HERE / "client.py", answers.url, out]
        subprocess.run(command, input=json.dumps(_OUTPUTS), text=True, check=True, stdout=subprocess.DEVNULL)
    report = {
        "resolved_ids": ["repo__1"],
        "unresolved_ids": ["repo__2"],
        "completed_ids": ["repo__1", "repo__2"],
    }
    (out / "stand-in.report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    record(folder, DATA if "--keep" in sys.argv else folder / "out")
