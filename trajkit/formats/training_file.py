"""The settings and the command beside training rows, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def settings(command: str, values: Mapping[str, Any]) -> str:
    """A YAML file with the values in their order, and the command that reads it on top."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=False)
    return f"# {command}\n{text}"


def script(command: str) -> str:
    """A shell script that runs a command in its own folder."""
    return f'#!/bin/sh\nset -e\ncd "$(dirname "$0")"\nexec {command}\n'
