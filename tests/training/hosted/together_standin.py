"""A stand-in for Together's API: files, jobs that go on with every look at them, losses, checkpoints."""

from __future__ import annotations

import json
from typing import Any

from tests.training.hosted.loopback import Hangup, Reply, Request
from tests.training.hosted.standin import StandIn

KEY = "tgp-key-of-a-test"
MODEL = "Qwen/Qwen3-8B"
LIFE = ("pending", "queued", "running", "running", "compressing", "uploading", "completed")
N_STEPS = 6


class TogetherStandIn(StandIn):
    """Together, as far as a fine-tuning needs it."""

    def __init__(self) -> None:
        super().__init__(_ROUTES, key=KEY, life=LIFE)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.files: dict[str, dict[str, Any]] = {}
        self.can_pay = True

    def _bad_key(self, key: str | None) -> Reply:
        said = {"message": f"Invalid API key provided: {key}", "type": "invalid_request_error"}
        return Reply({"error": said}, 401)

    def _missing(self, what: str) -> Reply:
        return _missing(what)

    def _store(self, request: Request) -> Reply:
        assert request.method == "PUT"
        self.contents[request.path.removeprefix("/storage/")] = request.body
        return Reply(b"", headers={"ETag": f'"{len(request.body)}"'})

    def _new_file(self, request: Request) -> Any:
        form = {name: value.decode() for name, value in request.form.items()}
        assert set(form) == {"purpose", "file_name", "file_type", "checksum"}, form
        if (known := self._known(form["checksum"])) is not None:
            return Reply({"file_id": known}, 409)
        file_id = self._record(form)
        return Reply(
            b"",
            302,
            {"Location": f"{self.url}/storage/{file_id}?signed=1", "X-Together-File-Id": file_id},
        )

    def _known(self, checksum: str) -> str | None:
        return next((key for key, one in self.files.items() if one["checksum"] == checksum), None)

    def _record(self, about: dict[str, Any]) -> str:
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = {
            "id": file_id,
            "object": "file",
            "created_at": 1763700000,
            "filename": about["file_name"],
            "bytes": 0,
            "purpose": about["purpose"],
            "FileType": about["file_type"],
            "processing_status": "PENDING",
            "checksum": about["checksum"],
        }
        return file_id

    def _preprocess(self, request: Request, file_id: str) -> Any:
        self.files[file_id]["bytes"] = len(self.contents[file_id])
        return self._shown(file_id)

    def _file(self, request: Request, file_id: str) -> Any:
        if file_id not in self.files:
            return _missing(file_id)
        shown = self._shown(file_id)
        rows = self.contents[file_id].decode().splitlines()
        bad = next(
            (n for n, row in enumerate(rows, 1) if not {"messages", "input"} & set(json.loads(row))), None
        )
        state = self.files[file_id]
        state["processing_status"] = "COMPLETED" if bad is None else "INVALID_FORMAT"
        if bad is not None:
            error = f"Line {bad}: must contain messages"
            state["validation_report"] = {"valid": False, "error": error, "error_type": "INVALID_FORMAT"}
        return shown

    def _shown(self, file_id: str) -> dict[str, Any]:
        return {name: value for name, value in self.files[file_id].items() if name != "checksum"}

    def _files(self, request: Request) -> Any:
        return {"data": [self._shown(file_id) for file_id in self.files]}

    def _delete_file(self, request: Request, file_id: str) -> Any:
        if self.files.pop(file_id, None) is None:
            return _missing(file_id)
        return {"id": file_id, "deleted": True}

    def _initiate(self, request: Request) -> Any:
        asked = request.json
        if (known := self._known(asked["checksum"])) is not None:
            return Reply({"file_id": known}, 409)
        file_id = self._record(asked)
        parts = [
            {"PartNumber": n, "URL": f"{self.url}/storage/{file_id}/{n}", "Headers": {}}
            for n in range(1, asked["num_parts"] + 1)
        ]
        return {"upload_id": "upload-1", "file_id": file_id, "parts": parts}

    def _complete(self, request: Request) -> Any:
        asked = request.json
        pieces = [self.contents[f"{asked['file_id']}/{part['part_number']}"] for part in asked["parts"]]
        assert [part["etag"] for part in asked["parts"]] == [str(len(piece)) for piece in pieces]
        self.contents[asked["file_id"]] = b"".join(pieces)
        return {"file": self._shown(asked["file_id"])}

    def _abort(self, request: Request) -> Any:
        self.files.pop(request.json["file_id"])
        return {}

    def _limits(self, request: Request) -> Any:
        if request.query.get("model_name") != MODEL:
            return Reply({"error": {"message": "Model is not supported for fine-tuning"}}, 404)
        return {
            "model_name": MODEL,
            "default_gradient_accumulation_steps": 1,
            "max_learning_rate": 1,
            "min_learning_rate": 0,
            "max_num_checkpoints": 10,
            "max_num_epochs": 20,
            "max_num_evals": 100,
            "max_seq_length_dpo": 8192,
            "max_seq_length_sft": 32768,
            "min_max_seq_length": 32,
            "merge_output_lora": True,
            "supports_full_training": True,
            "supports_reasoning": True,
            "supports_tools": True,
            "supports_vision": False,
            "lora_training": {
                "default_rank": 16,
                "max_rank": 64,
                "min_batch_size": 8,
                "max_batch_size": 64,
                "max_batch_size_dpo": 32,
                "target_modules": ["q_proj", "v_proj"],
            },
            "full_training": {"min_batch_size": 8, "max_batch_size": 64, "max_batch_size_dpo": 32},
        }

    def _estimate(self, request: Request) -> Any:
        assert request.json["training_file"] in self.files
        return {
            "estimation_available": True,
            "allowed_to_proceed": self.can_pay,
            "estimated_total_price": 4.2,
            "estimated_train_token_count": 12_000,
            "estimated_eval_token_count": 0,
            "user_limit": 1.5,
        }

    def _create(self, request: Request) -> Any:
        asked = request.json
        if asked["training_file"] not in self.files:
            return Reply({"error": {"message": f"no file {asked['training_file']}"}}, 400)
        job_id = f"ft-{len(self.jobs) + 1:04}"
        self._ages[job_id] = 0
        self.jobs[job_id] = {
            "id": job_id,
            "user_id": "user-1",
            "status": self.life[0],
            "created_at": f"2026-11-21T12:{len(self.jobs):02}:00Z",
            "updated_at": "2026-11-21T12:00:00Z",
            "model_output_name": f"me/{MODEL.rpartition('/')[2]}-{asked.get('suffix', 'x')}-0a1b2c3d",
            "adapter_output_name": None,
            **{name: asked[name] for name in _ECHOED if name in asked},
        }
        if asked["batch_size"] == "max":
            self.jobs[job_id]["batch_size"] = 64
        if self.hang_up_after_create:
            self.hang_up_after_create = False
            raise Hangup
        return self.jobs[job_id]

    def _list(self, request: Request) -> Any:
        return {"data": list(self.jobs.values())}

    def _job(self, request: Request, job_id: str) -> Any:
        if job_id not in self.jobs:
            return _missing(job_id)
        job = self.jobs[job_id]
        if job["status"] not in ("cancelled", "cancel_requested"):
            job["status"] = self._older(job_id)
        if job["status"] == "running":
            job["progress"] = {"estimate_available": True, "seconds_remaining": 60}
        if job["status"] == "completed":
            job |= {"token_count": 12_345, "total_price": 4_200_000_000}
        return job

    def _cancel(self, request: Request, job_id: str) -> Any:
        self.jobs[job_id]["status"] = "cancelled"
        return self.jobs[job_id]

    def _events(self, request: Request, job_id: str) -> Any:
        told = [("job_pending", "info", "Fine tune request created"), ("job_start", "info", "Job started")]
        status = self.jobs[job_id]["status"]
        if status in ("error", "user_error"):
            told.append(("job_error", "error", self.why))
        if status == "completed":
            told.append(("job_complete", "info", "Job finished"))
        return {
            "data": [
                {
                    "object": "fine-tune-event",
                    "type": kind,
                    "level": level,
                    "message": message,
                    "created_at": f"2026-11-21T12:00:{n:02}Z",
                    "total_steps": N_STEPS,
                }
                for n, (kind, level, message) in enumerate(told)
            ]
        }

    def _metrics(self, request: Request, job_id: str) -> Any:
        if self.jobs[job_id]["status"] in ("pending", "queued"):
            return Reply({"error": {"message": "no metrics yet"}}, 404)
        rows: list[dict[str, float]] = []
        for n in range(1, N_STEPS + 1):
            at = 1_795_000_000_000_000_000 + n
            rows.append({"timestamp": at, "train/global_step": n, "train/epoch": n / 2, "train/loss": 2 / n})
            if n % 3 == 0:
                rows.append({"timestamp": at, "train/global_step": n, "eval/loss": 2.5 / n})
        return {"metrics": rows}

    def _checkpoints(self, request: Request, job_id: str) -> Any:
        return {
            "data": [
                {
                    "checkpoint_type": f"{kind} step {step}",
                    "checkpoint": kind,
                    "created_at": "2026-11-21T12:00:00Z",
                    "path": f"s3://{job_id}/{step}/{kind}",
                    "step": step,
                    "object_name": f"me/tuned-{step}" if kind == "model" else f"me/tuned-{step}-adapter",
                }
                for step in (N_STEPS, 3)
                for kind in ("model", "adapter")
            ]
        }


_ECHOED = (
    *("model", "training_file", "validation_file", "suffix", "n_epochs", "n_evals", "batch_size"),
    *("learning_rate", "packing", "warmup_ratio", "weight_decay", "max_grad_norm"),
    *("lr_scheduler", "training_type", "training_method"),
)

_ROUTES = (
    ("POST", "/v1/files", "_new_file"),
    ("GET", "/v1/files", "_files"),
    ("POST", "/v1/files/multipart/initiate", "_initiate"),
    ("POST", "/v1/files/multipart/complete", "_complete"),
    ("POST", "/v1/files/multipart/abort", "_abort"),
    ("POST", "/v1/files/([^/]+)/preprocess", "_preprocess"),
    ("GET", "/v1/files/([^/]+)", "_file"),
    ("DELETE", "/v1/files/([^/]+)", "_delete_file"),
    ("GET", "/v1/fine-tunes/models/limits", "_limits"),
    ("POST", "/v1/fine-tunes/estimate-price", "_estimate"),
    ("POST", "/v1/fine-tunes", "_create"),
    ("GET", "/v1/fine-tunes", "_list"),
    ("GET", "/v1/fine-tunes/([^/]+)", "_job"),
    ("POST", "/v1/fine-tunes/([^/]+)/cancel", "_cancel"),
    ("GET", "/v1/fine-tunes/([^/]+)/events", "_events"),
    ("GET", "/v1/fine-tunes/([^/]+)/metrics", "_metrics"),
    ("GET", "/v1/fine-tunes/([^/]+)/checkpoints", "_checkpoints"),
)


def _missing(what: str) -> Reply:
    return Reply({"error": {"message": f"{what} was not found", "type": "not_found"}}, 404)
