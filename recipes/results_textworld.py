"""Rebuild the tables of docs/results.md: TextWorldExpress, with a tiny model that is made first.

needs    trajkit[textworld,local], Java 17 or newer; no key, no network, no GPU
minutes  20 to 40 a table on two cores; finished steps are skipped
cost     none
leaves   the folder of -o: the base, every store, model and evaluation, and each table as Markdown and JSON

Run as `python recipes/results_textworld.py textworld -o results`; without a table it lists them.
Each step is a command of trajkit, printed before it runs. The rules are those of `recipes/results.py`: the
temperatures are chosen on the development fold, and the tables show worlds of the test fold.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from results import EPISODES, IMITATION, Experiment, Lab, Worlds, main, repeated, seeds_of
from results_table import Model
from tiny_textworld import GAME, HISTORY, PARAMETERS

HERE = Path(__file__).resolve().parent
STEPS = 120
"""Optimizer steps for `EPISODES` demonstrations."""
ITERATIONS = 20
"""Iterations of reinforcement learning."""
APART = 200
"""Distance of the training worlds of two training seeds."""
MOST_STEPS = 20
"""The expert takes 7 to 13."""
MANY = 1_550
"""Episodes that were played for a model of table `textworld-rl`, including the demonstrations."""
CHECKPOINTS = 900
"""The first world that chooses the checkpoint of reinforcement learning; of the training fold."""
PLAY = ("--history", str(HISTORY), "--max-steps", str(MOST_STEPS), "--concurrency", "10")


class Kitchen(Lab):
    """The steps of one training seed. Answers are restricted to the valid actions."""

    environment = "textworld"
    settings = repeated("--env-set", (f"{name}={value}" for name, value in PARAMETERS.items()))
    model = "cook"
    recipe = ("--learning-rate", "5e-3", "--per-device-train-batch-size", "16")
    playing = (
        *(*settings, "--game", GAME, "--history", str(HISTORY)),
        *("--max-episode-steps", str(MOST_STEPS), "--max-new-tokens", "24", "--set", "play.json_mode=schema"),
        *("--seeds-per-iteration", "8", "--learning-rate", "1e-3", "--per-device-train-batch-size", "16"),
    )
    apart = APART
    evaluation = (*PLAY, *repeated("--policy-set", ("json_mode=schema", "max_new_tokens=24")))

    def shown(self, name: str, worlds: range) -> Path:
        """The expert's episodes."""
        store = self.store(name)
        self.trajkit(
            *("rollout", "textworld", *self.settings, "--game", GAME, "--policy", "expert", *PLAY),
            *("--seeds", seeds_of(worlds), "--run-seed", self.seed),
            *("--purpose", "train", "--quiet", "-o", store),
            leaves=store,
        )
        return store

    def imitated(self, name: str = "expert", n: int | None = None, *, apart: int = APART) -> tuple[str, int]:
        """The base tuned on n of the expert's episodes, in as many passes: its job, and how many answers.

        Args:
            name: Of the job.
            n: How many; None for the usual number.
            apart: Distance of the worlds of two training seeds.
        """
        goal = self.folder / self.model
        if not goal.exists():
            print("$ python recipes/tiny_textworld.py", goal, flush=True)
            subprocess.run([sys.executable, str(HERE / "tiny_textworld.py"), str(goal)], check=True)
        first, n = self.seed * apart, n or self.size.episodes
        steps = STEPS * n // EPISODES
        return self.tuned(name, self.shown(name, range(first, first + n)), "--merge", "--max-steps", steps)


def expert(lab: Kitchen) -> Iterator[Model]:
    """Cookingworld: demonstrations of the expert."""
    yield Model("expert demonstrations", "expert", *lab.imitated())


def more(lab: Kitchen) -> Iterator[Model]:
    """Cookingworld: as many demonstrations as episodes were played for the models of table `textworld-rl`."""
    yield Model("expert demonstrations", IMITATION, *lab.imitated(), lab.size.episodes)
    found = lab.imitated("expert-more", MANY, apart=MANY)
    yield Model("more expert demonstrations", "expert-more", *found, MANY, (IMITATION,))


def rl(lab: Kitchen) -> Iterator[Model]:
    """Cookingworld: demonstrations of the expert, and reinforcement learning after them."""
    imitated, n_learned = lab.imitated()
    yield Model("expert demonstrations", IMITATION, imitated, n_learned, lab.size.episodes)
    worlds = lab.size.others(CHECKPOINTS)
    lab.reserved([GAME], worlds)
    measured = ("--env", lab.environment, "--eval-seeds", seeds_of(worlds))
    # the environment itself ends an episode there, and so draws its reward
    drawn = ("--env", "random_rewards:RandomTextWorld", "--env-set", f"max_steps={MOST_STEPS}")
    ways = {
        "control": ("grpo with random rewards (control)", "grpo", drawn),
        "grpo": ("grpo", "grpo", measured),
        "ppo": ("ppo", "ppo", measured),
    }
    for name, (told, algorithm, world) in ways.items():
        options = ("--algorithm", algorithm, *world)
        more = lab.reinforced(name, f"runs/{imitated}/merged", ITERATIONS, *options)
        both = (more.job, n_learned + more.n_learned, lab.size.episodes + more.n_played)
        controls = (IMITATION,) if name == "control" else (IMITATION, "control")
        yield Model(f"the same; then RL by {told}, {ITERATIONS} iterations", name, *both, controls)


TABLES = {
    "textworld": Experiment(expert, Worlds([f"{GAME}-test"], 20_500), Worlds([f"{GAME}-dev"], 10_500)),
    "textworld-more": Experiment(more, Worlds([f"{GAME}-test"], 20_600), Worlds([f"{GAME}-dev"], 10_600)),
    "textworld-rl": Experiment(rl, Worlds([f"{GAME}-test"], 20_600), Worlds([f"{GAME}-dev"], 10_600)),
}


if __name__ == "__main__":
    main(__doc__, Kitchen, TABLES, worlds=30)
