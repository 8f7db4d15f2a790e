"""An option that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

runs_option = click.option(
    "--runs",
    "runs_folder",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="The folder where jobs are kept.",
)
"""Where jobs are, as `runs_folder`."""
