"""Record what the real Langfuse SDK sends to Langfuse: the thirty episodes, and every other shape.

    python -m tests.sources.langfuse.record FOLDER

Recorded with langfuse 5.0.4 and openai 3.57.0, which are installed into an environment under FOLDER. The SDK
sends spans over OTLP and scores as JSON to a stand-in for Langfuse's endpoint, which is in `client.py`.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.sources import foreign, thirty

HERE = Path(__file__).parent
FIXTURE = HERE.parents[1] / "data" / "sources" / "langfuse" / "sent.json.gz"
REQUIREMENTS = (("langfuse==5.0.4", "openai==3.57.0"),)


def record(folder: Path) -> tuple[list[dict[str, Any]], list[thirty.Played]]:
    """Play, and return what the SDK sent and what was played."""
    python = foreign.environment(folder / "environment", *REQUIREMENTS)
    script = Path(shutil.copy(HERE / "client.py", folder))
    with thirty.Answers() as answers, foreign.client(python, script, {"STAND_IN": answers.url}) as told:
        played = thirty.play(
            answers,
            lambda name: nullcontext(
                lambda messages, tools: told(
                    {"do": "ask", "session": name, "messages": messages, "tools": tools}
                )
            ),
            lambda name, value: told({"do": "score", "session": name, "value": value}),
        )
        answers.put({"role": "assistant", "content": "I look."})
        answers.put({"role": "assistant", "content": "I look again."})
        told({"do": "shapes"})
        return told({"do": "sent"}), played


def read_by_sdk(folder: Path, url: str) -> list[int]:
    """How many observations and scores the SDK reads from a server."""
    python = foreign.environment(folder / "environment", *REQUIREMENTS)
    with foreign.client(python, folder / "client.py", {"STAND_IN": url}) as told:
        counts: list[int] = told({"do": "read", "url": url})
    return counts


def recorded() -> list[dict[str, Any]]:
    """What the SDK sent when it was recorded."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))
    return found


if __name__ == "__main__":
    sent, _ = record(Path(sys.argv[1]).absolute())
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    FIXTURE.write_bytes(gzip.compress(json.dumps(sent).encode(), 9, mtime=0))
