"""Turn what an LLM agent lived through into a better agent: datasets and fine-tuning from episodes.

The names below are the public Python interface. Each is imported when it is first used, so that importing
trajkit costs a few milliseconds.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajkit.errors import TrajkitError
    from trajkit.evaluate.report import report
    from trajkit.evaluate.report_object import Report
    from trajkit.recorder.recorder import Recorder
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
    "open_dataset",
    "report",
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
    "open_dataset": "trajkit.store.dataset",
    "report": "trajkit.evaluate.report",
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
