"""Runs in an environment with verifiers 0.1: evaluates an environment whose world is the parent.

Usage: client_rows.py URL FOLDER. The parent writes a line of JSON for each call of `play`.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
os.environ["NO_KEY"] = "none"

import verifiers as vf  # noqa: E402
from datasets import Dataset  # noqa: E402
from verifiers.types import ClientConfig, Tool  # noqa: E402

CLIENT = ClientConfig(api_key_var="NO_KEY", api_base_url=URL)


class World(vf.MultiTurnEnv):
    """An environment whose observations come from elsewhere."""

    def __init__(
        self, name: str, number: int, prompt: list[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> None:
        self.seen: queue.Queue[Any] = queue.Queue()
        self.waiting: queue.Queue[bool] = queue.Queue()
        self.value = 0.0

        def episode_return(**_: Any) -> float:
            return self.value

        rows = [{"prompt": prompt, "answer": "", "info": {"name": name}, "example_id": number}]
        functions = [tool["function"] for tool in tools]
        super().__init__(
            eval_dataset=Dataset.from_list(rows),
            rubric=vf.Rubric(funcs=[episode_return], weights=[1.0]),
            tool_defs=[Tool(**function) for function in functions],
            env_id="babyai",
            max_turns=50,
        )

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        self.waiting.put(True)
        said = await asyncio.to_thread(self.seen.get)
        if said is None:
            state["final_env_response"] = []
            return []
        return [vf.ToolMessage(**said)]

    def start(self) -> None:
        def run() -> None:
            try:
                self.evaluate_sync(
                    CLIENT,
                    "stand-in",
                    {"temperature": 0.0},
                    results_path=FOLDER / self.eval_dataset[0]["info"]["name"],
                    state_columns=["trajectory"],
                    save_results=True,
                )
            finally:
                self.waiting.put(False)

        self.thread = threading.Thread(target=run)
        self.thread.start()


world: World | None = None
number = 0
for text in sys.stdin:
    told = json.loads(text)
    if "end" in told:
        assert world is not None
        world.value = told["value"]
        world.seen.put(None)
        world.thread.join()
        world, number = None, number + 1
    elif world is None:
        world = World(told["name"], number, told["messages"], told["tools"])
        world.start()
        world.waiting.get(timeout=60)
    else:
        world.seen.put(told["messages"][-1])
        world.waiting.get(timeout=60)
    sys.stdout.write('"ok"\n')
    sys.stdout.flush()
