"""Check by hand that verifiers gets the rewards of direct play. It is no test of pytest.

verifiers needs an older openai than this project's environment has, so run it in an environment of its own:

    python -m venv vf && vf/bin/pip install -e '.[babyai]' 'verifiers==0.4.0' uv
    PATH=$PWD/vf/bin:$PATH python tests/environments/verifiers_by_hand.py

vf-eval plays three worlds with a server that replies as the expert would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from trajkit.environments import make

RECIPES = Path(__file__).parents[2] / "recipes" / "environments"
SEEDS = range(3)
replies: dict[str, list[str]] = {}
"""The expert's actions by the first message."""
direct: dict[int, float] = {}
"""The return by seed."""


def play() -> None:
    environment = make("babyai", "goto")
    for seed in SEEDS:
        start = environment.reset(seed)
        actions, total, is_over = [], 0.0, False
        while not is_over:
            actions.append(environment.expert_action())  # type: ignore[attr-defined]
            result = environment.step(actions[-1])
            total, is_over = total + result.reward, result.terminated or result.truncated
        replies[f"{start.mission}\n\n{start.observation}"] = actions
        direct[seed] = total


class Expert(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        first = next(each["content"] for each in messages if each["role"] == "user")
        turn = sum(each["role"] == "assistant" for each in messages)
        told = first if isinstance(first, str) else first[0]["text"]
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "expert"}
        delta = {"role": "assistant", "content": replies[told][turn]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    play()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Expert)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        command = ["vf-eval", "verifiers-worlds", "-m", "expert", "--no-push", "--no-rich", "-o", folder]
        command += ["--client.base-url", f"http://127.0.0.1:{server.server_port}/v1"]
        command += ["--client.api-key-var", "NO_KEY", "--env.taskset.tasks", "goto"]
        command += ["--env.taskset.n-seeds", str(len(SEEDS))]
        path = os.pathsep.join([str(RECIPES), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"NO_KEY": "none", "PYTHONPATH": path}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        (traces,) = Path(folder).glob("*/traces.jsonl")
        rows = [json.loads(line) for line in traces.read_text(encoding="utf-8").splitlines()]
    found = {
        row["task"]["data"]["seed"]: row["traces"][0]["rewards"]["episode_return"]["score"] for row in rows
    }
    sys.stdout.write(f"direct     {dict(sorted(direct.items()))}\nverifiers  {dict(sorted(found.items()))}\n")
    return int(found != direct)


if __name__ == "__main__":
    sys.exit(main())
