"""Runs in an environment with mini-swe-agent: plays scripted instances as its benchmark runner does.

Usage: client.py URL FOLDER. The server at URL gives the answers.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
os.environ |= {
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}

import yaml  # noqa: E402
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.config import builtin_config_dir  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402


class World:
    """An environment that answers from a list, so that the fixture holds nothing of a machine."""

    def __init__(self, outputs: list[str]) -> None:
        self.outputs = outputs

    def execute(self, action: dict[str, Any]) -> dict[str, Any]:
        from minisweagent.exceptions import Submitted

        text = self.outputs.pop(0)
        if text == "submit":
            info = {"exit_status": "Submitted", "submission": "diff --git a/a.py b/a.py"}
            raise Submitted({"role": "exit", "content": info["submission"], "extra": info})
        return {"output": text, "returncode": 0, "exception_info": ""}

    def get_template_vars(self) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {"info": {"config": {"environment_type": "scripted"}}}


config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
preds = {}
for name, outputs in json.load(sys.stdin).items():
    model = LitellmModel(
        model_name="openai/stand-in",
        model_kwargs={"api_base": URL, "api_key": "none", "temperature": 0.0},
        **{key: item for key, item in config["model"].items() if key not in ("model_kwargs", "model_name")},
    )
    kept = {"system_template": "You fix bugs.", "instance_template": "Task: {{task}}", "step_limit": 4}
    agent = DefaultAgent(model, World(outputs), **kept)
    result = agent.run(f"Fix {name}.")
    agent.save(FOLDER / name / f"{name}.traj.json", {"instance_id": name})
    preds[name] = {"model_name_or_path": "stand-in", "instance_id": name, "model_patch": result["submission"]}
(FOLDER / "preds.json").write_text(json.dumps(preds, indent=2))
