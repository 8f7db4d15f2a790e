"""OpenAI's fine-tuning API on loopback, as far as a job needs it, with every failure that users have met."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from tests.training.hosted.loopback import Hangup, Loopback, Reply, Request

KEY = "sk-test-0123456789abcdef"
LOSSES = "step,train_loss\n1,0.9\n2,0.4\n"


class FakeOpenAI(Loopback):
    """The service. Jobs go one status on with each look; tests change what they want to see."""

    def __init__(self) -> None:
        super().__init__(self._heard, "/v1")
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
        self.bodies: list[dict[str, Any]] = []
        """What jobs were asked for with."""
        self.has_history = True
        self.first_status = "processed"
        """Of a file that was just uploaded."""
        self.moved: dict[str, str] = {}
        """`METHOD path` to the address that it is sent on to."""
        self.lag_s = 0.0
        """So long a new job is not listed."""
        self.is_endless = False
        """Whether every page of a list says that there are more, and the next is the same."""

    @property
    def calls(self) -> list[str]:
        """Every request, as `METHOD path`."""
        return [str(request) for request in self.requests]

    def _heard(self, request: Request) -> Reply:
        call = str(request)
        if request.key != KEY:
            said = {"message": f"Incorrect API key provided: {request.key}", "code": "invalid_api_key"}
            return Reply({"error": said}, 401)
        if call in self.moved:
            return Reply({}, 307, {"Location": self.moved[call]})
        is_form = request.headers.get("content-type", "").startswith("multipart")
        reply = self.answer(request, request.form if is_form else request.json)
        if self.broken.get(call, 0) > 0:
            self.broken[call] -= 1
            raise Hangup
        return reply

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

    def answer(self, request: Request, body: Any) -> Reply:
        """The answer to a call; of a form the fields are the body."""
        if (found := self.refused.get(str(request))) is not None:
            return Reply(found[1], found[0])
        query = request.query
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["models", name]:
                known = self.models.get(name)
                if known is None:
                    return _missing(f"The model '{name}' does not exist", "model_not_found")
                return Reply({"id": name, "object": "model", "created": 1, "owned_by": "system"} | known)
            case "POST", ["files"]:
                assert body["purpose"] == b"fine-tune"
                return Reply(self._add_file(body["file"]))
            case "GET", ["files", name]:
                self.files[name]["status"] = "processed"
                return Reply(self.files[name])
            case "DELETE", ["files", name]:
                if self.files.pop(name, None) is None:
                    return _missing("No such File object")
                return Reply({"id": name, "object": "file", "deleted": True})
            case "GET", ["files", name, "content"]:
                if name not in self.contents:
                    return _missing("No such File object")
                return Reply(self.contents[name], headers={"Content-Type": "application/octet-stream"})
            case "POST", ["uploads"]:
                assert body["purpose"] == "fine-tune"
                name = f"upload_{len(self.uploads) + 1}"
                self.uploads[name] = []
                return Reply(
                    {"id": name, "object": "upload", "status": "pending", "filename": body["filename"]}
                )
            case "POST", ["uploads", name, "parts"]:
                self.uploads[name].append(body["data"])
                return Reply({"id": f"part_{len(self.uploads[name])}", "object": "upload.part"})
            case "POST", ["uploads", name, "complete"]:
                n_parts = len(self.uploads[name])
                assert body["part_ids"] == [f"part_{number + 1}" for number in range(n_parts)]
                file = self._add_file(b"".join(self.uploads[name]))
                return Reply({"id": name, "object": "upload", "status": "completed", "file": file})
            case "POST", ["uploads", name, "cancel"]:
                return Reply({"id": name, "object": "upload", "status": "cancelled"})
            case "POST", ["fine_tuning", "jobs"]:
                return Reply(self.add_job(body))
            case "GET", ["fine_tuning", "jobs"]:
                return Reply(_page(self._listed(query), query))
            case "GET", ["fine_tuning", "jobs", name]:
                return Reply(self.look_at(name))
            case "GET", ["fine_tuning", "jobs", name, "events"] if self.is_endless:
                return Reply(_page(self.events[name][::-1], {}) | {"has_more": True})
            case "GET", ["fine_tuning", "jobs", name, "events"]:
                return Reply(_page(self.events[name][::-1], query))
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
                return Reply(_page([checkpoint], query))
            case "POST", ["fine_tuning", "jobs", name, verb]:
                self.jobs[name]["status"] = {"cancel": "cancelled", "pause": "paused", "resume": "running"}[
                    verb
                ]
                return Reply(self.jobs[name])
        return _missing(f"Invalid URL ({request})")

    def _add_file(self, content: bytes) -> dict[str, Any]:
        name = f"file-{len(self.contents)}"
        self.contents[name] = content
        self.files[name] = {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": 1,
            "filename": "training.jsonl",
            "purpose": "fine-tune",
            "status": self.first_status,
        }
        return self.files[name]

    def _listed(self, query: dict[str, str]) -> list[dict[str, Any]]:
        found = [job for job in self.jobs.values() if time.time() - job["made_at"] >= self.lag_s][::-1]
        for name, value in query.items():
            if (key := re.fullmatch(r"metadata\[(.+)\]", name)) is not None:
                found = [job for job in found if (job["metadata"] or {}).get(key[1]) == value]
        if self.has_history and query.get("limit") == "1" and not found:
            return [{"id": "ftjob-old", "object": "fine_tuning.job", "status": "succeeded", "model": "m"}]
        return found


def _page(items: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
    """A page of a list, after the item of this id."""
    after, limit = query.get("after"), int(query.get("limit", "20"))
    start = next((n + 1 for n, item in enumerate(items) if item["id"] == after), 0)
    page = items[start : start + limit]
    return {"object": "list", "data": page, "has_more": start + limit < len(items)}


def _missing(message: str, code: str | None = None) -> Reply:
    return Reply({"error": {"message": message, "code": code}}, 404)
