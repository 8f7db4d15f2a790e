"""OpenAI's fine-tuning API on loopback, as far as a job needs it, with every failure that users have met."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "sk-test-0123456789abcdef"
LOSSES = "step,train_loss\n1,0.9\n2,0.4\n"


class FakeOpenAI:
    """The state of the service. Jobs go one status on with each look; tests change what they want to see."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {"file-result": base64.b64encode(LOSSES.encode())}
        self.uploads: dict[str, list[bytes]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.statuses = ["validating_files", "queued", "running", "succeeded"]
        """What a job goes through, a look at a time; it stays at the last."""
        self.error: dict[str, Any] | None = None
        """Of a job whose last status is `failed`."""
        self.refused: dict[str, tuple[int, dict[str, Any]]] = {}
        """`METHOD path` to the refusal."""
        self.broken: dict[str, int] = {}
        """`METHOD path` to how often the connection is closed before the answer. The work is done."""
        self.models: dict[str, dict[str, Any]] = {"gpt-4.1-mini-2025-04-14": {"shutdown_date": "2027-01-14"}}
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        """What jobs were asked for with."""
        self.has_history = True
        self.first_status = "processed"
        """Of a file that was just uploaded."""
        self.mangle: Callable[[str, Any], Any] = lambda call, answer: answer
        """Makes of an answer (to `METHOD path`) what is sent."""
        self.moved: dict[str, str] = {}
        """`METHOD path` to the address that it is sent on to."""
        self.lag_s = 0.0
        """So long a new job is not listed."""
        self.is_endless = False
        """Whether every page of a list says that there are more, and the next is the same."""
        self.url = ""

    def add_job(self, body: dict[str, Any]) -> dict[str, Any]:
        job_id = f"ftjob-{len(self.jobs) + 1}"
        self.bodies.append(body)
        self.jobs[job_id] = {
            "id": job_id,
            "object": "fine_tuning.job",
            "created_at": int(time.time()),
            "model": body["model"],
            "status": self.statuses[0],
            "training_file": body["training_file"],
            "validation_file": body.get("validation_file"),
            "metadata": body.get("metadata"),
            "method": body.get("method"),
            "hyperparameters": {"n_epochs": 3},
            "fine_tuned_model": None,
            "error": {},  # what the service sends where there is none
            "result_files": [],
            "organization_id": "org-test",
            "seed": body.get("seed", 42),
            "trained_tokens": None,
            "looks": 0,
            "made_at": time.time(),
        }
        self.events[job_id] = []
        self.tell(job_id, f"Created fine-tuning job: {job_id}")
        return self.jobs[job_id]

    def tell(self, job_id: str, message: str, *, kind: str = "message", data: Any = None) -> None:
        told = self.events[job_id]
        told.append(
            {
                "id": f"ftevent-{job_id}-{len(told)}",
                "object": "fine_tuning.job.event",
                "created_at": int(time.time()),
                "level": "info",
                "message": message,
                "type": kind,
                "data": data,
            }
        )

    def look_at(self, job_id: str) -> dict[str, Any]:
        """The job; each look takes it one status on."""
        job = self.jobs[job_id]
        if job["status"] in ("succeeded", "failed", "cancelled", "paused"):
            return job
        job["looks"] += 1
        job["status"] = self.statuses[min(job["looks"], len(self.statuses) - 1)]
        if job["status"] == "running":
            data = {"step": 1, "total_steps": 2, "train_loss": 0.9, "train_mean_token_accuracy": 0.5}
            self.tell(job_id, "Step 1/2: training loss=0.90", kind="metrics", data=data)
            self.tell(job_id, "an unknown kind of event", kind="moderation_checks", data={"blocked": 0})
        elif job["status"] == "succeeded":
            data = {"step": 2, "total_steps": 2, "train_loss": 0.4, "full_valid_loss": 0.5}
            self.tell(job_id, "Step 2/2: training loss=0.40", kind="metrics", data=data)
            job |= {
                "fine_tuned_model": f"ft:{job['model']}:org-test::abc",
                "result_files": ["file-result"],
                "trained_tokens": 1_000_000,
                "finished_at": int(time.time()),
            }
        elif job["status"] == "failed":
            job["error"] = self.error
        return job

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Status and answer of a call."""
        if (found := self.refused.get(f"{method} {path}")) is not None:
            return found
        match method, path.strip("/").split("/"):
            case "GET", ["models", name]:
                known = self.models.get(name)
                if known is None:
                    return 404, {
                        "error": {"message": f"The model '{name}' does not exist", "code": "model_not_found"}
                    }
                return 200, {"id": name, "object": "model", "created": 1, "owned_by": "system"} | known
            case "POST", ["files"]:
                return 200, self._add_file(body["file"], body["filename"], body["purpose"])
            case "GET", ["files", name]:
                self.files[name]["status"] = "processed"
                return 200, self.files[name]
            case "DELETE", ["files", name]:
                if self.files.pop(name, None) is None:
                    return 404, {"error": {"message": "No such File object", "code": None}}
                return 200, {"id": name, "object": "file", "deleted": True}
            case "GET", ["files", name, "content"]:
                return 200, self.contents[name]
            case "POST", ["uploads"]:
                name = f"upload_{len(self.uploads) + 1}"
                self.uploads[name] = []
                return 200, {
                    "id": name,
                    "object": "upload",
                    "status": "pending",
                    "filename": body["filename"],
                }
            case "POST", ["uploads", name, "parts"]:
                self.uploads[name].append(body["data"])
                return 200, {"id": f"part_{len(self.uploads[name])}", "object": "upload.part"}
            case "POST", ["uploads", name, "complete"]:
                n_parts = len(self.uploads[name])
                assert body["part_ids"] == [f"part_{number + 1}" for number in range(n_parts)]
                file = self._add_file(b"".join(self.uploads[name]), "training.jsonl", "fine-tune")
                return 200, {"id": name, "object": "upload", "status": "completed", "file": file}
            case "POST", ["uploads", name, "cancel"]:
                return 200, {"id": name, "object": "upload", "status": "cancelled"}
            case "POST", ["fine_tuning", "jobs"]:
                return 200, self.add_job(body)
            case "GET", ["fine_tuning", "jobs"]:
                return 200, _page(self._listed(query), query)
            case "GET", ["fine_tuning", "jobs", name]:
                return 200, self.look_at(name)
            case "GET", ["fine_tuning", "jobs", name, "events"] if self.is_endless:
                return 200, _page(self.events[name][::-1], {}) | {"has_more": True}
            case "GET", ["fine_tuning", "jobs", name, "events"]:
                return 200, _page(self.events[name][::-1], query)
            case "GET", ["fine_tuning", "jobs", name, "checkpoints"]:
                checkpoint = {
                    "id": "ckpt-1",
                    "object": "fine_tuning.job.checkpoint",
                    "created_at": 1,
                    "fine_tuning_job_id": name,
                    "fine_tuned_model_checkpoint": f"ft:{self.jobs[name]['model']}:org-test::abc:ckpt-step-1",
                    "metrics": {"step": 1, "train_loss": 0.9},
                    "step_number": 1,
                }
                return 200, _page([checkpoint], query)
            case "POST", ["fine_tuning", "jobs", name, verb]:
                self.jobs[name]["status"] = {"cancel": "cancelled", "pause": "paused", "resume": "running"}[
                    verb
                ]
                return 200, self.jobs[name]
        return 404, {"error": {"message": f"Invalid URL ({method} {path})", "code": None}}

    def _add_file(self, content: bytes, filename: str, purpose: str) -> dict[str, Any]:
        name = f"file-{len(self.contents)}"
        self.contents[name] = content
        self.files[name] = {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": 1,
            "filename": filename,
            "purpose": purpose,
            "status": self.first_status,
        }
        return self.files[name]

    def _listed(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        found = [job for job in self.jobs.values() if time.time() - job["made_at"] >= self.lag_s][::-1]
        for name, values in query.items():
            if (key := re.fullmatch(r"metadata\[(.+)\]", name)) is not None:
                found = [job for job in found if (job["metadata"] or {}).get(key[1]) == values[0]]
        if self.has_history and query.get("limit") == ["1"] and not found:
            return [{"id": "ftjob-old", "object": "fine_tuning.job", "status": "succeeded", "model": "m"}]
        return found


def _page(items: list[dict[str, Any]], query: dict[str, list[str]]) -> dict[str, Any]:
    """A page of a list, after the item of this id."""
    after, limit = query.get("after", [None])[0], int(query.get("limit", ["20"])[0])
    start = next((n + 1 for n, item in enumerate(items) if item["id"] == after), 0)
    page = items[start : start + limit]
    return {"object": "list", "data": page, "has_more": start + limit < len(items)}


def _parts(body: bytes, kind: str) -> dict[str, Any]:
    """The fields of a form with files."""
    whole: Message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    found: dict[str, Any] = {}
    for part in whole.get_payload():  # type: ignore[union-attr]
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if (filename := part.get_filename()) is not None:
            found[str(name)], found["filename"] = content, filename
        else:
            assert isinstance(content, bytes)
            found[str(name)] = content.decode()
    return found


@contextmanager
def serving(fake: FakeOpenAI) -> Iterator[str]:
    """The service at an address, for the time of a block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else 40 ms between head and body

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            path = parts.path.removeprefix("/v1")
            call = f"{self.command} {path}"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fake.calls.append(call)
            if self.headers.get("Authorization") != f"Bearer {KEY}":
                said = {"message": f"Incorrect API key provided: {self.headers.get('Authorization')}"}
                self._send(401, {"error": said | {"code": "invalid_api_key"}})
                return
            kind = self.headers.get("Content-Type", "")
            read: Any = _parts(body, kind) if kind.startswith("multipart") else json.loads(body or b"null")
            if call in fake.moved:
                self._send(307, {}, Location=fake.moved[call])
                return
            status, answer = fake.answer(self.command, path, parse_qs(parts.query), read)
            if fake.broken.get(call, 0) > 0:
                fake.broken[call] -= 1
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self._send(status, fake.mangle(call, answer))

        def _send(self, status: int, answer: Any, **headers: str) -> None:
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            is_bytes = isinstance(answer, bytes) and not answer.startswith(b"{")
            self.send_header("Content-Type", "application/octet-stream" if is_bytes else "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _serve

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield fake.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
