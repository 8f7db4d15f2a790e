"""A stand-in for Fireworks' API: datasets, jobs that go on with every look at them, losses in a file."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.training.hosted.loopback import Hangup, Reply, Request
from tests.training.hosted.standin import StandIn

KEY = "fw-key-of-a-test"
ACCOUNT = "accounts/me"
MODEL = "accounts/fireworks/models/qwen3-8b"
LIFE = ("CREATING", "VALIDATING", "RUNNING", "RUNNING", "WRITING_RESULTS", "COMPLETED")
N_STEPS = 4


class FireworksStandIn(StandIn):
    """Fireworks, as far as a fine-tuning needs it."""

    def __init__(self) -> None:
        super().__init__(_ROUTES, key=KEY, life=LIFE)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.accounts: list[dict[str, Any]] = [{"name": ACCOUNT, "email": "me@example.com", "state": "READY"}]
        self.datasets: dict[str, dict[str, Any]] = {}
        self.is_flat = True
        """Whether a line of the metrics has its numbers at the top, or under `data`."""
        self.n_early = 1
        """So often an upload is not there yet when it is asked to be looked at."""

    def _bad_key(self, key: str | None) -> Reply:
        return Reply({"code": 16, "message": f"bad key {key}", "details": []}, 401)

    def _missing(self, what: str) -> Reply:
        return _missing(what)

    def _store(self, request: Request) -> Reply:
        name = request.path.removeprefix("/storage/")
        if request.method == "GET":
            job = self.jobs[name]
            if job["state"] in ("JOB_STATE_CREATING", "JOB_STATE_VALIDATING"):
                return Reply(b"<Error>NoSuchKey</Error>", 404)
            return Reply("".join(json.dumps(row) + "\n" for row in self._metrics()).encode() + b'{"step": 9')
        n_bytes = len(request.body)
        assert request.headers["x-goog-content-length-range"] == f"{n_bytes},{n_bytes}"
        assert request.headers["content-type"] == "application/octet-stream"
        self.contents[name] = request.body
        return Reply(b"")

    def _metrics(self) -> list[dict[str, Any]]:
        rows = []
        for n in range(1, N_STEPS + 1):
            said: dict[str, float] = {"train/loss": 2 / n, "train/lr": 1e-4, "train/epoch": n / 2}
            if n % 2 == 0:
                said["eval/loss"] = 2.5 / n
            flat = {"step": n, **said}
            rows.append(flat if self.is_flat else {"step": n, "timestamp": 1_795_000_000.5 + n, "data": said})
        return rows

    def _list_accounts(self, request: Request) -> Any:
        return {"accounts": self.accounts, "nextPageToken": ""}

    def _account(self, request: Request, name: str) -> Any:
        return next((one for one in self.accounts if one["name"] == f"accounts/{name}"), _missing(name))

    def _model(self, request: Request, name: str) -> Any:
        whole = request.path.removeprefix("/v1/")
        if whole == MODEL:
            more = {"contextLength": 40960, "trainingContextLength": 32768, "supportsTools": True}
            return {"name": MODEL, "kind": "HF_BASE_MODEL", "state": "READY", "tunable": True, **more}
        if name == "closed":
            return {"name": whole, "kind": "HF_BASE_MODEL", "state": "READY", "tunable": False}
        return _missing(name)

    def _create_dataset(self, request: Request) -> Any:
        asked = request.json
        assert set(asked) == {"datasetId", "dataset"}, asked
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,62}", asked["datasetId"])
        name = f"{ACCOUNT}/datasets/{asked['datasetId']}"
        self.datasets[name] = {"name": name, "state": "UPLOADING", **asked["dataset"]}
        return self.datasets[name]

    def _upload(self, request: Request, name: str) -> Any:
        self.contents[f"{ACCOUNT}/datasets/{name}"] = request.form["file"]
        return {"id": name, "bytes": len(request.form["file"]), "object": "file"}

    def _endpoint(self, request: Request, name: str) -> Any:
        ((filename, size),) = request.json["filenameToSize"].items()
        assert size == str(int(size))
        signed = "X-Goog-SignedHeaders=content-type%3Bhost%3Bx-goog-content-length-range"
        return {"filenameToSignedUrls": {filename: f"{self.url}/storage/{ACCOUNT}/datasets/{name}?{signed}"}}

    def _validate(self, request: Request, name: str) -> Any:
        self.n_early -= 1
        if self.n_early >= 0:
            return Reply({"code": 9, "message": "files are still landing", "details": []}, 400)
        return {}

    def _dataset(self, request: Request, name: str) -> Any:
        whole = f"{ACCOUNT}/datasets/{name}"
        if whole not in self.datasets:
            return _missing(name)
        shown = dict(self.datasets[whole])
        rows = self.contents.get(whole, b"").decode().splitlines()
        if rows and all("messages" in json.loads(row) or "input" in json.loads(row) for row in rows):
            self.datasets[whole] |= {"state": "READY", "format": "CHAT"}
        elif rows:
            said = {"code": "INVALID_ARGUMENT", "message": "a row has no messages"}
            self.datasets[whole]["status"] = said
        return shown

    def _delete_dataset(self, request: Request, name: str) -> Any:
        gone = self.datasets.pop(f"{ACCOUNT}/datasets/{name}", None)
        return _missing(name) if gone is None else {}

    def _create(self, request: Request, kind: str) -> Any:
        asked = request.json
        job_id = request.query["supervisedFineTuningJobId" if kind.startswith("superv") else "dpoJobId"]
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,62}", job_id)
        name = f"{ACCOUNT}/{kind}/{job_id}"
        if name in self.jobs:
            return Reply({"code": 6, "message": f"{name} already exists", "details": []}, 409)
        if self.datasets.get(asked["dataset"], {}).get("state") != "READY":
            return Reply({"code": 9, "message": f"dataset {asked['dataset']} is not ready"}, 400)
        self._ages[name] = 0
        cost = {"estimatedCost": {"currencyCode": "USD", "units": "3", "nanos": 250_000_000}}
        self.jobs[name] = {"name": name, "state": f"JOB_STATE_{self.life[0]}", **asked}
        if kind.startswith("superv"):
            self.jobs[name] |= {"metricsFileSignedUrl": f"{self.url}/storage/{name}?signed=1", **cost}
        if self.hang_up_after_create:
            self.hang_up_after_create = False
            raise Hangup
        return self.jobs[name]

    def _job(self, request: Request, name: str) -> Any:
        if name not in self.jobs:
            return _missing(name)
        job = self.jobs[name]
        if job["state"].removeprefix("JOB_STATE_") not in _RESTING:
            job["state"] = f"JOB_STATE_{self._older(name)}"
        if job["state"] == "JOB_STATE_RUNNING":
            job["jobProgress"] = {"percent": 10 * self._ages[name], "epoch": 0}
        if job["state"] == "JOB_STATE_FAILED":
            job["status"] = {"code": "INVALID_ARGUMENT", "message": self.why}
        return job

    def _cancel(self, request: Request, name: str) -> Any:
        self.jobs[name]["state"] = "JOB_STATE_CANCELLED"
        return {}

    def _resume(self, request: Request, name: str) -> Any:
        self.jobs[name]["state"] = "JOB_STATE_RUNNING"
        return self.jobs[name]

    def _metrics_address(self, request: Request, name: str) -> Any:
        return {"signedUrl": f"{self.url}/storage/{name}?signed=1"}


_RESTING = ("CANCELLED", "PAUSED", "COMPLETED", "FAILED", "EARLY_STOPPED")

_OURS = f"/v1/{ACCOUNT}"
_JOB = f"({ACCOUNT}/(?:supervisedFineTuningJobs|dpoJobs)/[^/:]+)"

_ROUTES = (
    ("GET", "/v1/accounts", "_list_accounts"),
    ("GET", "/v1/accounts/([^/]+)", "_account"),
    ("GET", "/v1/accounts/[^/]+/models/([^/]+)", "_model"),
    ("POST", f"{_OURS}/datasets", "_create_dataset"),
    ("POST", f"{_OURS}/datasets/([^/:]+):upload", "_upload"),
    ("POST", f"{_OURS}/datasets/([^/:]+):getUploadEndpoint", "_endpoint"),
    ("POST", f"{_OURS}/datasets/([^/:]+):validateUpload", "_validate"),
    ("GET", f"{_OURS}/datasets/([^/:]+)", "_dataset"),
    ("DELETE", f"{_OURS}/datasets/([^/:]+)", "_delete_dataset"),
    ("POST", f"{_OURS}/(supervisedFineTuningJobs|dpoJobs)", "_create"),
    ("GET", f"/v1/{_JOB}", "_job"),
    ("POST", f"/v1/{_JOB}:cancel", "_cancel"),
    ("POST", f"/v1/{_JOB}:resume", "_resume"),
    ("GET", f"/v1/{_JOB}:getMetricsFileEndpoint", "_metrics_address"),
)


def _missing(what: str) -> Reply:
    return Reply({"code": 5, "message": f"{what} was not found", "details": []}, 404)
