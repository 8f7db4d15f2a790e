"""Make the table of docs/results.md again: TextWorldExpress, with a tiny model that is made first.

needs    trajkit[textworld,local], Java 17 or newer; no key, no network, no GPU
minutes  20 to 40 on two cores; what is done is not done again
cost     none
leaves   the folder of -o: the base, every store, model and evaluation, and the table as Markdown and JSON

Run as `python recipes/results_textworld.py textworld -o results`. Each step is a command of trajkit,
printed before it runs. The rules are those of `recipes/results.py`: the temperatures are chosen on the
development fold, and the table shows worlds of the test fold.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from results import Experiment, Lab, Worlds, main, repeated
from results_table import Model
from tiny_textworld import GAME, HISTORY, PARAMETERS

HERE = Path(__file__).resolve().parent
APART = 200
"""Between the training worlds of two training seeds."""
MOST_STEPS = 20
"""The expert takes 7 to 13."""
PLAY = ("--history", str(HISTORY), "--max-steps", str(MOST_STEPS), "--concurrency", "10")


class Kitchen(Lab):
    """The steps of one training seed. Answers are held to the valid actions."""

    environment = "textworld"
    settings = repeated("--env-set", (f"{name}={value}" for name, value in PARAMETERS.items()))
    model = "cook"
    recipe = ("--learning-rate", "5e-3", "--max-steps", "120", "--per-device-train-batch-size", "16")
    evaluation = (*PLAY, *repeated("--policy-set", ("json_mode=schema", "max_new_tokens=24")))

    def shown(self) -> Path:
        """The expert's episodes on this training seed's worlds."""
        store, first = self.store("expert"), self.seed * APART
        self.trajkit(
            *("rollout", "textworld", *self.settings, "--game", GAME, "--policy", "expert", *PLAY),
            *("--seeds", f"{first}:{first + self.size.episodes}", "--run-seed", self.seed),
            *("--purpose", "train", "--quiet", "-o", store),
            leaves=store,
        )
        return store


def expert(lab: Kitchen) -> Iterator[Model]:
    """Cookingworld: demonstrations of the expert."""
    goal = lab.folder / lab.model
    if not goal.exists():
        print("$ python recipes/tiny_textworld.py", goal, flush=True)
        subprocess.run([sys.executable, str(HERE / "tiny_textworld.py"), str(goal)], check=True)
    yield Model("expert demonstrations", "expert", *lab.tuned("expert", lab.shown()))


TABLES = {"textworld": Experiment(expert, Worlds([f"{GAME}-test"], 20_500), Worlds([f"{GAME}-dev"], 10_500))}


if __name__ == "__main__":
    main(__doc__, Kitchen, TABLES, worlds=30)
