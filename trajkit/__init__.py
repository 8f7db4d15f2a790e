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
    from trajkit.checkup.doctor import doctor
    from trajkit.cli.recipe_run import run
    from trajkit.errors import TrajkitError
    from trajkit.evaluate.report_object import Report
    from trajkit.recorder.recorder import Recorder
    from trajkit.schema import Episode, Feedback, Manifest, Message, Transition
    from trajkit.store.dataset import Dataset, open_dataset
    from trajkit.store.writer import write_episodes
    from trajkit.verbs.archive import archive, archive_verify
    from trajkit.verbs.checks import check_env, leak, redact, replay, reserve
    from trajkit.verbs.credit import mask, pairs, score, weight
    from trajkit.verbs.evaluate import evaluate
    from trajkit.verbs.export import export
    from trajkit.verbs.files import convert, import_, tokens, validate
    from trajkit.verbs.hosted_preference import dpo_fireworks, dpo_openai, dpo_together
    from trajkit.verbs.hosted_training import sft_fireworks, sft_openai, sft_together
    from trajkit.verbs.jobs import jobs_cancel, jobs_list, jobs_pause, jobs_resume, jobs_show, jobs_wait
    from trajkit.verbs.local_training import dpo_local, kto_local, sft_local
    from trajkit.verbs.look import info, lineage, query, show, stats
    from trajkit.verbs.pull import pull
    from trajkit.verbs.push import push
    from trajkit.verbs.register import register
    from trajkit.verbs.report import report
    from trajkit.verbs.rollout import rollout
    from trajkit.verbs.selection import dedupe, merge, select, split
    from trajkit.verbs.services import down, serve, status, up
    from trajkit.verbs.try_ import try_
    from trajkit.viewer.view import view

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
    "Recorder": "trajkit.recorder.recorder",
    "Report": "trajkit.evaluate.report_object",
    "TrajkitError": "trajkit.errors",
    "Transition": "trajkit.schema",
    "archive": "trajkit.verbs.archive",
    "archive_verify": "trajkit.verbs.archive",
    "check_env": "trajkit.verbs.checks",
    "convert": "trajkit.verbs.files",
    "dedupe": "trajkit.verbs.selection",
    "doctor": "trajkit.checkup.doctor",
    "down": "trajkit.verbs.services",
    "dpo_fireworks": "trajkit.verbs.hosted_preference",
    "dpo_local": "trajkit.verbs.local_training",
    "dpo_openai": "trajkit.verbs.hosted_preference",
    "dpo_together": "trajkit.verbs.hosted_preference",
    "evaluate": "trajkit.verbs.evaluate",
    "export": "trajkit.verbs.export",
    "import_": "trajkit.verbs.files",
    "info": "trajkit.verbs.look",
    "jobs_cancel": "trajkit.verbs.jobs",
    "jobs_list": "trajkit.verbs.jobs",
    "jobs_pause": "trajkit.verbs.jobs",
    "jobs_resume": "trajkit.verbs.jobs",
    "jobs_show": "trajkit.verbs.jobs",
    "jobs_wait": "trajkit.verbs.jobs",
    "kto_local": "trajkit.verbs.local_training",
    "leak": "trajkit.verbs.checks",
    "lineage": "trajkit.verbs.look",
    "mask": "trajkit.verbs.credit",
    "merge": "trajkit.verbs.selection",
    "open_dataset": "trajkit.store.dataset",
    "pairs": "trajkit.verbs.credit",
    "pull": "trajkit.verbs.pull",
    "push": "trajkit.verbs.push",
    "query": "trajkit.verbs.look",
    "redact": "trajkit.verbs.checks",
    "register": "trajkit.verbs.register",
    "replay": "trajkit.verbs.checks",
    "report": "trajkit.verbs.report",
    "reserve": "trajkit.verbs.checks",
    "rollout": "trajkit.verbs.rollout",
    "run": "trajkit.cli.recipe_run",
    "score": "trajkit.verbs.credit",
    "select": "trajkit.verbs.selection",
    "serve": "trajkit.verbs.services",
    "sft_fireworks": "trajkit.verbs.hosted_training",
    "sft_local": "trajkit.verbs.local_training",
    "sft_openai": "trajkit.verbs.hosted_training",
    "sft_together": "trajkit.verbs.hosted_training",
    "show": "trajkit.verbs.look",
    "split": "trajkit.verbs.selection",
    "stats": "trajkit.verbs.look",
    "status": "trajkit.verbs.services",
    "tokens": "trajkit.verbs.files",
    "try_": "trajkit.verbs.try_",
    "up": "trajkit.verbs.services",
    "validate": "trajkit.verbs.files",
    "view": "trajkit.viewer.view",
    "weight": "trajkit.verbs.credit",
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
