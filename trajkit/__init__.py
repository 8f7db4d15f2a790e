"""Turn the episodes of an LLM agent into datasets, and fine-tune better agents on them.

The names below are the public Python interface: the data models, and each command as a function of the
same name with the same options. Each is imported when it is first used, so that importing trajkit costs a few
milliseconds.
"""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

JOBS = {
    "Play": ("up", "status", "down", "rollout", "check-env"),
    "Bring in": ("export", "archive", "import", "receive", "pull"),
    "Look": ("inspect", "info", "diff", "log", "show", "query", "stats", "view"),
    "Choose": (
        "select",
        "dedupe",
        "split",
        "merge",
        "leak",
        "reserve",
        "mask",
        "weight",
        "redact",
        "forget",
        "tag",
        "rebuild",
        "score",
        "replay",
        "pairs",
    ),
    "Write training files": ("convert", "validate", "tokens"),
    "Train": ("sft", "dpo", "kto", "rl", "jobs"),
    "Deploy": ("try", "serve", "register", "lineage"),
    "Measure": ("evaluate", "report"),
    "Share": ("push",),
    "Set up": ("run", "doctor", "random-model", "completion"),
}
"""The commands of the command line by job, in the order in which they are used."""

if TYPE_CHECKING:  # the public names, for type checkers and for the program below
    from trajkit.commands.archive import archive as archive
    from trajkit.commands.archive import archive_verify as archive_verify
    from trajkit.commands.check_env import check_env as check_env
    from trajkit.commands.completion import completion as completion
    from trajkit.commands.convert import convert as convert
    from trajkit.commands.dedupe import dedupe as dedupe
    from trajkit.commands.diff import diff as diff
    from trajkit.commands.doctor import doctor as doctor
    from trajkit.commands.down import down as down
    from trajkit.commands.dpo import dpo_fireworks as dpo_fireworks
    from trajkit.commands.dpo import dpo_local as dpo_local
    from trajkit.commands.dpo import dpo_openai as dpo_openai
    from trajkit.commands.dpo import dpo_together as dpo_together
    from trajkit.commands.evaluate import evaluate as evaluate
    from trajkit.commands.export import export as export
    from trajkit.commands.forget import forget as forget
    from trajkit.commands.import_ import import_ as import_
    from trajkit.commands.info import info as info
    from trajkit.commands.inspect import inspect as inspect
    from trajkit.commands.jobs import jobs_cancel as jobs_cancel
    from trajkit.commands.jobs import jobs_list as jobs_list
    from trajkit.commands.jobs import jobs_pause as jobs_pause
    from trajkit.commands.jobs import jobs_resume as jobs_resume
    from trajkit.commands.jobs import jobs_show as jobs_show
    from trajkit.commands.jobs import jobs_wait as jobs_wait
    from trajkit.commands.kto import kto_local as kto_local
    from trajkit.commands.leak import leak as leak
    from trajkit.commands.lineage import lineage as lineage
    from trajkit.commands.log import log as log
    from trajkit.commands.mask import mask as mask
    from trajkit.commands.merge import merge as merge
    from trajkit.commands.pairs import pairs as pairs
    from trajkit.commands.pull import pull as pull
    from trajkit.commands.push import push as push
    from trajkit.commands.query import query as query
    from trajkit.commands.random_model import random_model as random_model
    from trajkit.commands.rebuild import rebuild as rebuild
    from trajkit.commands.receive import receive as receive
    from trajkit.commands.redact import redact as redact
    from trajkit.commands.register import register as register
    from trajkit.commands.replay import replay as replay
    from trajkit.commands.report import report as report
    from trajkit.commands.reserve import reserve as reserve
    from trajkit.commands.rl import rl_local as rl_local
    from trajkit.commands.rl import rl_tinker as rl_tinker
    from trajkit.commands.rollout import rollout as rollout
    from trajkit.commands.run import run as run
    from trajkit.commands.score import score as score
    from trajkit.commands.select import select as select
    from trajkit.commands.serve import serve as serve
    from trajkit.commands.sft import sft_fireworks as sft_fireworks
    from trajkit.commands.sft import sft_local as sft_local
    from trajkit.commands.sft import sft_openai as sft_openai
    from trajkit.commands.sft import sft_together as sft_together
    from trajkit.commands.show import show as show
    from trajkit.commands.split import split as split
    from trajkit.commands.stats import stats as stats
    from trajkit.commands.status import status as status
    from trajkit.commands.tag import tag as tag
    from trajkit.commands.tokens import tokens as tokens
    from trajkit.commands.try_ import try_ as try_
    from trajkit.commands.up import up as up
    from trajkit.commands.validate import validate as validate
    from trajkit.commands.view import view as view
    from trajkit.commands.weight import weight as weight
    from trajkit.errors import TrajkitError as TrajkitError
    from trajkit.evaluation.reports.object import Report as Report
    from trajkit.rollouts.recorder.recorder import Recorder as Recorder
    from trajkit.schema import Episode as Episode
    from trajkit.schema import Feedback as Feedback
    from trajkit.schema import Manifest as Manifest
    from trajkit.schema import Message as Message
    from trajkit.schema import Transition as Transition
    from trajkit.store.dataset import Dataset as Dataset
    from trajkit.store.dataset import open_dataset as open_dataset
    from trajkit.store.writer import write_episodes as write_episodes

__version__ = "0.1.0"

_IMPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)
_MODULE_BY_NAME = {
    name: module for module, name in _IMPORT.findall(Path(__file__).read_text(encoding="utf-8"))
}
__all__ = sorted([*_MODULE_BY_NAME, "__version__"])

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
