"""Turn what an LLM agent lived through into a better agent: datasets and fine-tuning from episodes.

The names below are the public Python interface: what data is made of, and each command as a function of the
same name with the same options. Each is imported when it is first used, so that importing trajkit costs a few
milliseconds.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajkit.commands.archive import archive, archive_verify
    from trajkit.commands.check_env import check_env
    from trajkit.commands.completion import completion
    from trajkit.commands.convert import convert
    from trajkit.commands.dedupe import dedupe
    from trajkit.commands.doctor import doctor
    from trajkit.commands.down import down
    from trajkit.commands.dpo import dpo_fireworks, dpo_local, dpo_openai, dpo_together
    from trajkit.commands.evaluate import evaluate
    from trajkit.commands.export import export
    from trajkit.commands.import_ import import_
    from trajkit.commands.info import info
    from trajkit.commands.jobs import jobs_cancel, jobs_list, jobs_pause, jobs_resume, jobs_show, jobs_wait
    from trajkit.commands.kto import kto_local
    from trajkit.commands.leak import leak
    from trajkit.commands.lineage import lineage
    from trajkit.commands.mask import mask
    from trajkit.commands.merge import merge
    from trajkit.commands.pairs import pairs
    from trajkit.commands.pull import pull
    from trajkit.commands.push import push
    from trajkit.commands.query import query
    from trajkit.commands.redact import redact
    from trajkit.commands.register import register
    from trajkit.commands.replay import replay
    from trajkit.commands.report import report
    from trajkit.commands.reserve import reserve
    from trajkit.commands.rollout import rollout
    from trajkit.commands.run import run
    from trajkit.commands.score import score
    from trajkit.commands.select import select
    from trajkit.commands.serve import serve
    from trajkit.commands.sft import sft_fireworks, sft_local, sft_openai, sft_together
    from trajkit.commands.show import show
    from trajkit.commands.split import split
    from trajkit.commands.stats import stats
    from trajkit.commands.status import status
    from trajkit.commands.tokens import tokens
    from trajkit.commands.try_ import try_
    from trajkit.commands.up import up
    from trajkit.commands.validate import validate
    from trajkit.commands.view import view
    from trajkit.commands.weight import weight
    from trajkit.errors import TrajkitError
    from trajkit.evaluation.report_object import Report
    from trajkit.rollouts.recorder.recorder import Recorder
    from trajkit.schema import Episode, Feedback, Manifest, Message, Transition
    from trajkit.store.dataset import Dataset, open_dataset
    from trajkit.store.writer import write_episodes

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "Episode",
    "Feedback",
    "Manifest",
    "Message",
    "Recorder",
    "Report",
    "TrajkitError",
    "Transition",
    "__version__",
    "archive",
    "archive_verify",
    "check_env",
    "completion",
    "convert",
    "dedupe",
    "doctor",
    "down",
    "dpo_fireworks",
    "dpo_local",
    "dpo_openai",
    "dpo_together",
    "evaluate",
    "export",
    "import_",
    "info",
    "jobs_cancel",
    "jobs_list",
    "jobs_pause",
    "jobs_resume",
    "jobs_show",
    "jobs_wait",
    "kto_local",
    "leak",
    "lineage",
    "mask",
    "merge",
    "open_dataset",
    "pairs",
    "pull",
    "push",
    "query",
    "redact",
    "register",
    "replay",
    "report",
    "reserve",
    "rollout",
    "run",
    "score",
    "select",
    "serve",
    "sft_fireworks",
    "sft_local",
    "sft_openai",
    "sft_together",
    "show",
    "split",
    "stats",
    "status",
    "tokens",
    "try_",
    "up",
    "validate",
    "view",
    "weight",
    "write_episodes",
]

_MODULE_BY_NAME = {
    "Dataset": "trajkit.store.dataset",
    "Episode": "trajkit.schema",
    "Feedback": "trajkit.schema",
    "Manifest": "trajkit.schema",
    "Message": "trajkit.schema",
    "Recorder": "trajkit.rollouts.recorder.recorder",
    "Report": "trajkit.evaluation.report_object",
    "TrajkitError": "trajkit.errors",
    "Transition": "trajkit.schema",
    "archive": "trajkit.commands.archive",
    "archive_verify": "trajkit.commands.archive",
    "check_env": "trajkit.commands.check_env",
    "completion": "trajkit.commands.completion",
    "convert": "trajkit.commands.convert",
    "dedupe": "trajkit.commands.dedupe",
    "doctor": "trajkit.commands.doctor",
    "down": "trajkit.commands.down",
    "dpo_fireworks": "trajkit.commands.dpo",
    "dpo_local": "trajkit.commands.dpo",
    "dpo_openai": "trajkit.commands.dpo",
    "dpo_together": "trajkit.commands.dpo",
    "evaluate": "trajkit.commands.evaluate",
    "export": "trajkit.commands.export",
    "import_": "trajkit.commands.import_",
    "info": "trajkit.commands.info",
    "jobs_cancel": "trajkit.commands.jobs",
    "jobs_list": "trajkit.commands.jobs",
    "jobs_pause": "trajkit.commands.jobs",
    "jobs_resume": "trajkit.commands.jobs",
    "jobs_show": "trajkit.commands.jobs",
    "jobs_wait": "trajkit.commands.jobs",
    "kto_local": "trajkit.commands.kto",
    "leak": "trajkit.commands.leak",
    "lineage": "trajkit.commands.lineage",
    "mask": "trajkit.commands.mask",
    "merge": "trajkit.commands.merge",
    "open_dataset": "trajkit.store.dataset",
    "pairs": "trajkit.commands.pairs",
    "pull": "trajkit.commands.pull",
    "push": "trajkit.commands.push",
    "query": "trajkit.commands.query",
    "redact": "trajkit.commands.redact",
    "register": "trajkit.commands.register",
    "replay": "trajkit.commands.replay",
    "report": "trajkit.commands.report",
    "reserve": "trajkit.commands.reserve",
    "rollout": "trajkit.commands.rollout",
    "run": "trajkit.commands.run",
    "score": "trajkit.commands.score",
    "select": "trajkit.commands.select",
    "serve": "trajkit.commands.serve",
    "sft_fireworks": "trajkit.commands.sft",
    "sft_local": "trajkit.commands.sft",
    "sft_openai": "trajkit.commands.sft",
    "sft_together": "trajkit.commands.sft",
    "show": "trajkit.commands.show",
    "split": "trajkit.commands.split",
    "stats": "trajkit.commands.stats",
    "status": "trajkit.commands.status",
    "tokens": "trajkit.commands.tokens",
    "try_": "trajkit.commands.try_",
    "up": "trajkit.commands.up",
    "validate": "trajkit.commands.validate",
    "view": "trajkit.commands.view",
    "weight": "trajkit.commands.weight",
    "write_episodes": "trajkit.store.writer",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
