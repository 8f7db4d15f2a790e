"""A stand-in for the program `vllm`: a real process over real HTTP, without a model.

Paths, fields, statuses and metrics are those in the source of vLLM 0.33. Answers are drawn by the seed from
the actions that the JSON schema of the request allows; a token is a byte. Options with `--stand-in` are its
own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the stand-in's own process starts without it
    import pytest

_BLOCK = 16
"""Tokens of a block of the prefix cache."""
_END = 256
"""The token that ends a turn."""


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on PATH as `vllm`, and work in this empty folder."""
    monkeypatch.chdir(folder)
    path = command(folder / "bin")
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def command(folder: Path) -> Path:
    """Write an executable `vllm` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vllm"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).absolute()} "$@"\n')
    path.chmod(0o755)
    return path


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    made.add_argument("subcommand", choices=["serve"])
    made.add_argument("model_tag")
    made.add_argument("--served-model-name", nargs="+")
    made.add_argument("--enable-lora", action="store_true")
    made.add_argument("--max-lora-rank", type=int, choices=[1, 8, 16, 32, 64, 128, 256, 320, 512], default=16)
    made.add_argument("--max-loras", type=int, default=1)
    made.add_argument("--lora-modules", nargs="+", default=[])
    made.add_argument("--chat-template")
    made.add_argument("--generation-config", default="auto")
    made.add_argument("--host")
    made.add_argument("--port", type=int, default=8000)
    made.add_argument("--stand-in-fails", help="what it prints before it fails to start")
    made.add_argument("--stand-in-dies-after", type=int, default=10**9, help="answers before it is killed")
    made.add_argument("--stand-in-child", help="a file that gets the process id of a worker")
    return made


class Engine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.lock, self.n_answers = asked, threading.Lock(), 0
        base = (asked.served_model_name or [asked.model_tag])[0]
        self.models = {base: asked.model_tag}
        for each in asked.lora_modules:
            name, path = each.split("=", 1) if "," not in each else json.loads(each).values()
            if problem := self.load(name, path):
                raise SystemExit(f"ValueError: {problem}")
        self.blocks: set[tuple[str, bytes]] = set()
        self.counters = dict.fromkeys(
            (
                "vllm:prefix_cache_queries_total",
                "vllm:prefix_cache_hits_total",
                "vllm:generation_tokens_total",
                "vllm:e2e_request_latency_seconds_sum",
            ),
            0.0,
        )
        super().__init__((asked.host, asked.port), Handler)

    def load(self, name: str, path: str) -> str | None:
        """Load an adapter; why it cannot be loaded."""
        if not (Path(path) / "adapter_config.json").is_file():
            return f"Loading lora {name} failed: No adapter found for {path}"
        rank = json.loads((Path(path) / "adapter_config.json").read_text()).get("r", 8)
        if rank > self.asked.max_lora_rank:
            return f"LoRA rank {rank} is greater than max_lora_rank {self.asked.max_lora_rank}."
        self.models[name] = path
        return None

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        prompt = "".join(f"{each['role']}: {each['content']}\n" for each in body["messages"]).encode()
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema", {})
        actions = schema.get("properties", {}).get("action", {}).get("enum") or ["go forward"]
        action = random.Random(f"{body['model']} {body.get('seed')}").choice(actions)
        text = json.dumps({"action": action}) if schema else action
        ids = [*text.encode(), _END]
        time.sleep(0.002)
        with self.lock:
            self.n_answers += 1
            if self.n_answers > self.asked.stand_in_dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            whole = [(body["model"], prompt[:end]) for end in range(_BLOCK, len(prompt) + 1, _BLOCK)]
            self._count("vllm:prefix_cache_queries_total", len(prompt))
            self._count("vllm:prefix_cache_hits_total", _BLOCK * sum(each in self.blocks for each in whole))
            self._count("vllm:generation_tokens_total", len(ids))
            self._count("vllm:e2e_request_latency_seconds_sum", time.monotonic() - began)
            self.blocks.update(whole)
        content = [{"token": "?", "logprob": math.log(0.5), "bytes": None, "top_logprobs": []} for _ in ids]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "tool_calls": []},
            "logprobs": {"content": content} if body.get("logprobs") else None,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": ids if body.get("return_token_ids") else None,
        }
        n_prompt = len(prompt)
        return {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": {
                "prompt_tokens": n_prompt,
                "completion_tokens": len(ids),
                "total_tokens": n_prompt + len(ids),
            },
            "prompt_token_ids": list(prompt) if body.get("return_token_ids") else None,
        }

    def _count(self, name: str, more: float) -> None:
        self.counters[name] += more


class Handler(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        key = os.environ.get("VLLM_API_KEY")
        if self.path == "/health":
            self._send(200, b"")
        elif self.path == "/metrics":
            labels = '{engine="0",model_name="a } b"}'
            lines = [f"{name}{labels} {value}" for name, value in self.server.counters.items()]
            self._send(200, "\n".join(["# HELP vllm:prefix_cache_queries_total ...", *lines, ""]).encode())
        elif key and self.headers["Authorization"] != f"Bearer {key}":
            self._send(401, {"error": "Unauthorized"})
        elif self.path == "/v1/models":
            cards = [
                {"id": name, "object": "model", "root": root} for name, root in self.server.models.items()
            ]
            self._send(200, {"object": "list", "data": cards})
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        can_load = os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "0").lower() in ("1", "true")
        if self.path == "/v1/load_lora_adapter" and can_load:
            problem = self.server.load(body["lora_name"], body["lora_path"])
            if problem is None:
                self._send(200, f"Success: LoRA adapter '{body['lora_name']}' added successfully.".encode())
            else:
                self._refuse(404, problem, "NotFoundError")
        elif self.path != "/v1/chat/completions":
            self._send(404, {"detail": "Not Found"})
        elif body["model"] not in self.server.models:
            self._refuse(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        else:
            self._send(200, self.server.complete(body))

    def _refuse(self, code: int, message: str, kind: str) -> None:
        self._send(code, {"error": {"message": message, "type": kind, "param": None, "code": code}})

    def _send(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    asked = parser().parse_args()
    sys.stderr.write("INFO stand-in for vLLM: no model is loaded\n")
    if asked.stand_in_fails:
        raise SystemExit(asked.stand_in_fails)
    if asked.stand_in_child:
        Path(asked.stand_in_child).write_text(str(os.getpid()))
    engine = Engine(asked)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    engine.serve_forever(0.05)


if __name__ == "__main__":
    main()
