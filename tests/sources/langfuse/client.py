"""What runs beside Langfuse's SDK, told by lines of JSON what to do; it keeps what the SDK sends.

`record.py` starts it in the environment where the SDK is; nothing of trajkit is there.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SENT: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    """The endpoint of Langfuse."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path.endswith("/otel/v1/traces"):
            from google.protobuf.json_format import MessageToDict
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

            SENT.append({"otlp": MessageToDict(ExportTraceServiceRequest.FromString(body))})
        else:
            SENT.append({"path": self.path, "body": json.loads(body)})
        answer = b'{"id": "1"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


SERVER = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=SERVER.serve_forever, args=(0.05,), daemon=True).start()
os.environ["LANGFUSE_PUBLIC_KEY"], os.environ["LANGFUSE_SECRET_KEY"] = "pk-lf-stand-in", "sk-lf-stand-in"
os.environ["LANGFUSE_BASE_URL"] = f"http://127.0.0.1:{SERVER.server_address[1]}"

from langfuse import Langfuse, get_client, propagate_attributes  # noqa: E402 -- it reads the environment
from langfuse.openai import OpenAI  # noqa: E402

LANGFUSE = get_client()


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr
    model = OpenAI(base_url=os.environ["STAND_IN"], api_key="none", max_retries=0)
    for line in sys.stdin:
        request = json.loads(line)
        out.write(json.dumps(DOES[request.pop("do")](model, **request)) + "\n")
        out.flush()


def ask(model: Any, session: str, messages: list[Any], tools: list[Any]) -> None:
    with propagate_attributes(session_id=session, user_id="expert", tags=["babyai"]):
        model.chat.completions.create(model="stand-in", messages=messages, tools=tools)


def score(_: Any, session: str, value: float) -> None:
    LANGFUSE.create_score(name="episode_return", value=value, session_id=session, data_type="NUMERIC")


def shapes(model: Any) -> None:
    """Log what the thirty episodes lack: sub-agents, settings, failures, other forms, every kind of score."""
    user = {"role": "user", "content": "What is the weather in Paris?"}
    with propagate_attributes(
        session_id="trip", user_id="ada", tags=["search"], version="v7", metadata={"customer": "acme"}
    ):
        with LANGFUSE.start_as_current_observation(as_type="agent", name="lead", input="Paris?") as lead:
            model.chat.completions.create(
                model="stand-in", messages=[user], temperature=0.5, max_tokens=64, name="first"
            )
            with (
                LANGFUSE.start_as_current_observation(as_type="tool", name="delegate"),
                LANGFUSE.start_as_current_observation(as_type="agent", name="searcher") as searcher,
            ):
                generation(
                    "look",
                    [{"role": "user", "content": [{"type": "text", "text": "Look."}, IMAGE]}],
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "Rain.", "signature": "s"},
                            {"type": "text", "text": "It rains."},
                        ],
                    },
                    usage_details={"input": 10, "input_cached_tokens": 5, "output": 4, "total": 19},
                    cost_details={"input": 0.5, "output": 0.25},
                    metadata={"attempt": 1},
                )
                with LANGFUSE.start_as_current_observation(as_type="agent", name="reader"):
                    generation("read", "Read it.", "Done.")
                searcher.score(name="thorough", value=1, data_type="BOOLEAN")
            called = generation("last", {"messages": [user], "top_p": 0.5}, RESPONSE, prompt=Prompt())
            called.score(name="quality", value=0.75, comment="It found it.")
            lead.score_trace(name="tone", value="friendly", data_type="CATEGORICAL")
        time.sleep(0.002)
        failed = LANGFUSE.start_observation(as_type="generation", name="broken", model="m", input=[user])
        failed.update(level="ERROR", status_message="model is overloaded")
        failed.end()
        failed.score_trace(name="helpful", value=0, data_type="BOOLEAN")
        time.sleep(0.002)
        model.chat.completions.create(model="stand-in", messages=[user])
    LANGFUSE.create_score(name="goal_reached", value=1, session_id="trip", data_type="BOOLEAN")
    with LANGFUSE.start_as_current_observation(as_type="span", name="lone"):
        generation("structured", "Name a city as JSON.", '{"city": "Paris"}')
    with LANGFUSE.start_as_current_observation(as_type="span", name="no model", input="x"):
        pass


def generation(name: str, asked: Any, answered: Any, **more: Any) -> Any:
    time.sleep(0.002)  # Langfuse 3 keeps milliseconds
    with LANGFUSE.start_as_current_observation(
        as_type="generation", name=name, model="stand-in", input=asked, output=answered, **more
    ) as made:
        return made


class Prompt:
    """A prompt of Langfuse's prompt management."""

    name, version, is_fallback = "weather", 3, False


def sent(_: Any) -> list[dict[str, Any]]:
    LANGFUSE.flush()
    LANGFUSE.shutdown()
    return SENT


def read(_: Any, url: str) -> list[int]:
    """Read a server with the SDK, which checks the form of the answers: how many observations and scores."""
    other = Langfuse(
        public_key="pk-lf-reader", secret_key="sk-lf-reader", base_url=url, tracing_enabled=False
    )
    counts = []
    for get, fields in (
        (other.api.observations.get_many, "core,basic,time,io,model,usage,prompt,trace_context"),
        (other.api.scores.get_many, "details,subject,annotation"),
    ):
        n, cursor = 0, None
        while True:
            answer = get(fields=fields, limit=50, cursor=cursor)
            n, cursor = n + len(answer.data), answer.meta.cursor
            if cursor is None:
                break
        counts.append(n)
    return counts


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/paris.png"}}
RESPONSE = {
    "model": "stand-in",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
DOES = {"ask": ask, "score": score, "shapes": shapes, "sent": sent, "read": read}

if __name__ == "__main__":
    main()
