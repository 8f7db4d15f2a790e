"""Record traces with the real OpenAI Agents SDK: `python -m tests.sources.openai_agents.record FOLDER`.

The SDK's environment is made in FOLDER. It writes `thirty.jsonl.gz`, `played.json.gz` and `agents.jsonl` to
FOLDER/out, or with --keep to tests/data. Recorded with openai-agents 0.24.0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sources import foreign, thirty

DATA = Path(__file__).parents[2] / "data" / "sources" / "openai_agents"
PACKAGE = "openai-agents==0.24.0"
_HERE = Path(__file__).parent


def record(folder: Path, out: Path) -> list[thirty.Played]:
    """Play and write; what was played."""
    python = foreign.environment(folder / "environment", [PACKAGE])
    out.mkdir(parents=True, exist_ok=True)
    with thirty.Answers() as answers:
        files = (out / "thirty.jsonl", out / "agents.jsonl")
        with foreign.client(python, _HERE / "client.py", None, answers.url, *files) as tell:

            @contextmanager
            def episode(name: str) -> Iterator[thirty.Ask]:
                yield lambda messages, tools: tell({"name": name, "messages": messages})
                tell({"end": name})

            played = thirty.play(answers, episode, lambda _name, _value: None)
    whole = out / "thirty.jsonl"
    foreign.packed(whole, out / "thirty.jsonl.gz")
    whole.unlink()
    return played


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    record(folder, DATA if "--keep" in sys.argv else folder / "out")
