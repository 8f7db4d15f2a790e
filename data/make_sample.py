"""Make data/babyai-sample again: play through the gateway, put the stores together, say what was done.

Run as `.venv/bin/python data/make_sample.py` (two minutes; needs trajkit[stack,babyai], no key and no network).
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import trajkit
from trajkit.schema import Episode, Left, LineageEntry, Manifest
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

GOAL = Path(__file__).parent / "babyai-sample"

ROLLOUTS = {
    "train": "rollout babyai --variant baseline --variant history_and_reasoning --seeds 0:4 --purpose train",
    "eval": "rollout babyai --variant history_and_reasoning --seeds 1000:1003 --purpose eval",
}

README = """\
# babyai-sample

{n_episodes} episodes ({n_steps:,} steps) of BabyAI, all five tasks, played through the TensorZero gateway and recorded by
trajkit: training and evaluation episodes, successes and failures, with rewards and the exact prompts.

**The model that played is a rule player, not a language model**: a small program with seeded mistakes that reads the
prompt and answers like one. The data are for examples and tests; they say nothing about any model.

Made by `python data/make_sample.py`, which runs

    trajkit up
    {train} -o train
    {eval} -o eval

and puts the two stores together. Python {python}, {versions}.

Licence: Apache-2.0, as trajkit. BabyAI and MiniGrid are Apache-2.0 software of the Farama Foundation; no code of theirs
is here.

Content digest: `{digest}`

sha256:

{checksums}
"""


def trajkit_command(folder: Path, command: str) -> None:
    """Run one command in a folder, as a person types it."""
    subprocess.run([sys.executable, "-m", "trajkit", *command.split()], cwd=folder, check=True)


def played(folder: Path) -> Iterator[Episode]:
    """The episodes of both stores."""
    for name in ROLLOUTS:
        yield from open_dataset(folder / name)


def merged_lineage(folder: Path) -> LineageEntry:
    """What became of the two rollouts."""
    manifests = [open_store(folder / name).manifest for name in ROLLOUTS]
    n_episodes = sum(manifest.counts.n_episodes for manifest in manifests)
    n_steps = sum(manifest.counts.n_steps for manifest in manifests)
    left: tuple[Left, ...] = ()
    return LineageEntry(
        verb="merge",
        arguments={"commands": [f"trajkit {command}" for command in ROLLOUTS.values()]},
        n_episodes_in=n_episodes,
        n_episodes_out=n_episodes,
        n_steps_in=n_steps,
        n_steps_out=n_steps,
        left=left,
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def readme(manifest: Manifest) -> str:
    """What the folder says of itself."""
    packages = ("trajkit", "tensorzero", "chdb-core", "minigrid")
    return README.format(
        n_episodes=manifest.counts.n_episodes,
        n_steps=manifest.counts.n_steps,
        train=f"trajkit {ROLLOUTS['train']}",
        eval=f"trajkit {ROLLOUTS['eval']}",
        python=platform.python_version(),
        versions=", ".join(f"{name} {version(name)}" for name in packages),
        digest=manifest.digest,
        checksums="\n".join(f"    {part.sha256}  {part.path}" for part in manifest.parts),
    )


def main() -> None:
    """Play, merge, replace the old sample."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trajkit_command(folder, "up")
        try:
            for store, command in ROLLOUTS.items():
                trajkit_command(folder, f"{command} --concurrency 50 -o {store}")
        finally:
            trajkit_command(folder, "down")
        manifest = write_episodes(
            folder / "sample",
            played(folder),
            kind="rollout",
            source={"kind": "sample", "made_by": "data/make_sample.py"},
            lineage=[merged_lineage(folder)],
        )
        (folder / "sample" / "README.md").write_text(readme(manifest), encoding="utf-8")
        shutil.rmtree(GOAL, ignore_errors=True)
        shutil.copytree(folder / "sample", GOAL)


if __name__ == "__main__":
    main()
