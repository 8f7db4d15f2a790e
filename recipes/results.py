"""Rebuild the tables of docs/results.md: BabyAI, with the tiny model that comes with trajkit.

needs    trajkit[babyai,local,tensorzero]; no key, no network, no GPU
minutes  10 to 40 a table on two cores; finished steps are skipped
cost     none
leaves   the folder of -o: every store, model and evaluation, and each table as Markdown and JSON

Run as `python recipes/results.py own -o results`; without a table it lists them. Each step is a
command of trajkit, printed before it runs. Every model is measured at temperature 1 and at its best
temperature, which is chosen by the return on worlds that the table does not show. Each table has worlds of
its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from results_table import BASE, Model, best_temperatures, lines, markdown, placed

from trajkit._core.files import write_text
from trajkit._core.settings import PROJECT_FILE
from trajkit.training.job import TuneJob

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "recipes" / "babyai" / "tensorzero.toml"
ENVIRONMENTS = ROOT / "recipes" / "environments"
VARIANT = "baseline"
MODEL = "sample:tiny-base"
TWO = ("goto", "pickup")
FIVE = (*TWO, "open", "putnext", "pick_up_seq_go_to")
APART = 10_000
"""Distance of the training worlds of two training seeds, and of the held-out worlds of two tables."""
HELD_OUT = 100_000
CHECKPOINTS = 125_000
"""The first world that chooses the checkpoint of reinforcement learning."""
TEMPERATURES = ("1", "0.7", "0.5", "0.25")
EPISODES, STEPS = 120, 150
"""Training episodes per task, and the optimizer steps that suit them."""
RECIPE = ("--learning-rate", "5e-3", "--max-steps", str(STEPS), "--per-device-train-batch-size", "32")
GOOD = 0.5
IMITATION = "imitation"
ITERATIONS = 10
"""For reinforcement learning of two tasks; half as many after imitation."""
OF_FIVE = 20
"""For reinforcement learning of five tasks; half as many without demonstrations."""
FIVE_RL = (
    *("--algorithm", "gigpo", "--set", "gamma=0.95", "--set", "lora=null", "--learning-rate", "5e-4"),
    *("--minibatches", "8"),
)
"""Options of reinforcement learning of five tasks."""
PER_ITERATION, ATTEMPTS, EVAL_EVERY = 4, 8, 5
"""Seeds that an iteration plays, attempts at each, and iterations between two measurements: the defaults."""


class Size(NamedTuple):
    """How much is played."""

    episodes: int
    """Training episodes per task."""
    worlds: int
    """Held-out worlds per task to measure on; half as many others choose each model's temperature."""

    def others(self, first: int) -> range:
        """Held-out worlds to choose by."""
        return range(first, first + self.worlds // 2)


class Reinforced(NamedTuple):
    """A model trained by reinforcement learning."""

    job: str
    """Its job."""
    n_learned: int
    """Answers that it learned."""
    n_played: int
    """Episodes that it played, including those that measured it meanwhile."""


class Lab:
    """One folder and one training seed; a step whose result exists is skipped.

    Args:
        folder: Where everything is written.
        seed: Of the worlds, the draws and the training.
        size: How much is played.
    """

    environment = "babyai"
    settings: Sequence[str] = ()
    """Options that give the environment its settings."""
    model = MODEL
    recipe: Sequence[str] = RECIPE
    """Options of every training run."""
    playing: Sequence[str] = (
        *("--task", ",".join(TWO), "--config", str(CONFIG), "--function", "act", "--variant", VARIANT),
        *("--max-new-tokens", "24"),
    )
    """What reinforcement learning plays, and the prompts of the model."""
    apart = APART
    """Between the training worlds of two training seeds."""
    evaluation: Sequence[str] = ("--config", str(CONFIG), "--template-variant", VARIANT)
    """Options of every evaluation."""

    def __init__(self, folder: Path, seed: int, size: Size) -> None:
        self.folder, self.seed, self.size = folder, seed, size

    def store(self, name: str) -> Path:
        """A store of this training seed."""
        return self.folder / "stores" / f"{name}-{self.seed}"

    def trajkit(self, *arguments: str | int | Path, leaves: Path | None = None) -> None:
        """Run a command, unless its result exists."""
        if leaves is not None and leaves.exists():
            return
        words = ["trajkit", *map(str, arguments)]
        print("$", *words, flush=True)
        started = time.monotonic()
        found = filter(None, (str(ENVIRONMENTS), os.environ.get("PYTHONPATH")))
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(found)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{done.stdout}{done.stderr}\nexit code {done.returncode}")
        print(f"  {time.monotonic() - started:.0f} s", flush=True)

    def reserved(self, tasks: Sequence[str], worlds: range) -> None:
        """Keep worlds for measuring: a command that would play or learn them is refused."""
        self.trajkit(
            *("reserve", self.environment, *self.settings, *repeated("--task", tasks)),
            *("--seeds", seeds_of(worlds)),
        )

    def measuring(self, tasks: Sequence[str]) -> Sequence[str]:
        """Options of reinforcement learning whose checkpoint is chosen on held-out worlds."""
        worlds = self.size.others(CHECKPOINTS)
        self.reserved(tasks, worlds)
        return ("--env", self.environment, "--eval-seeds", seeds_of(worlds))

    def n_seeds(self, iterations: int) -> int:
        """Training and held-out seeds that this many iterations play, a seed once per attempt at it."""
        n_measured = (1 + iterations // EVAL_EVERY) * (self.size.worlds // 2)
        return iterations * PER_ITERATION * ATTEMPTS + n_measured

    def played(self, name: str, tasks: Sequence[str], *policy: str, n: int | None = None) -> Path:
        """Episodes on training worlds of this training seed: n of every task, or as many as is usual."""
        store, first = self.store(name), self.seed * APART
        worlds = range(first, first + (n or self.size.episodes))
        self.trajkit(
            *("rollout", "babyai", "--policy", *policy, *repeated("--task", tasks), "--function", "act"),
            *("--config", CONFIG, "--variant", VARIANT, "--seeds", seeds_of(worlds)),
            *("--run-seed", self.seed, "--purpose", "train", "--quiet", "-o", store),
            leaves=store,
        )
        return store

    def derived(self, verb: str, store: Path, name: str, *options: str | int) -> Path:
        """A store made of another one."""
        goal = self.store(name)
        self.trajkit(verb, store, *options, "-o", goal, leaves=goal)
        return goal

    def tuned(self, name: str, store: Path, *options: str | int) -> tuple[str, int]:
        """The base model tuned on a store: the name of its job, and how many answers it learned."""
        job = f"{name}-{self.seed}"
        folder = self.folder / "runs" / job
        self.trajkit(
            *("sft", "local", "--train", store, "--val-fraction", 0, "--model", self.model),
            *self.recipe,
            *("--seed", self.seed, "--name", job, "--runs", "runs", "--yes", *options),
            leaves=folder / "model" / "adapter_config.json",
        )
        found = TuneJob.model_validate_json((folder / "job.json").read_text("utf-8"))
        assert found.train is not None  # a store was learned
        return job, found.train.n_learned

    def filtered(self, name: str, played: Path, n: int) -> tuple[str, int]:
        """The base model tuned on good episodes of the first n seeds, in as many passes as in table `own`."""
        where = f"episode_return > {GOOD} and seed < {self.seed * APART + n}"
        good = self.derived("select", played, f"{name}-good", "--unreserved", "--where", where)
        masked = self.derived("mask", good, name, *repeated("--reason", ("invalid", "no-op", "loop")))
        return self.tuned(name, masked, "--merge", "--max-steps", STEPS * n // EPISODES)

    def reinforced(self, name: str, model: str, iterations: int, *options: str) -> Reinforced:
        """A model trained by reinforcement learning, on other worlds than `played`.

        Args:
            name: Of the job.
            model: What it starts from.
            iterations: How often it plays and learns.
            options: More of `trajkit rl local`.
        """
        job = f"{name}-{self.seed}"
        first = self.seed * self.apart + max(self.apart // 2, self.size.episodes)
        folder = self.folder / "runs" / job
        self.trajkit(
            *("rl", "local", *self.playing, "--model", model, *options),
            *("--iterations", iterations, "--seeds", f"{first}:{first + PER_ITERATION * iterations}"),
            *("--seed", self.seed, "--name", job, "--runs", "runs", "--yes"),
            leaves=folder / "model" / ("config.json" if "lora=null" in options else "adapter_config.json"),
        )
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
        n_learned, n_played = (
            sum(each.get(name, 0) for each in events) for name in ("n_learned", "n_episodes")
        )
        return Reinforced(job, n_learned, n_played)

    def measured(
        self, part: str, model: Model, tasks: Sequence[str], worlds: range, temperatures: Sequence[str]
    ) -> Path:
        """A model's episodes on held-out worlds."""
        store = self.store(f"{part}/{model.name}")
        decodings = [f"temperature={temperature}" for temperature in temperatures]
        self.trajkit(
            *("evaluate", self.environment, *self.settings, "--variants", f"{model.name}={model.model}"),
            *(*repeated("--task", tasks), *self.evaluation),
            *(*repeated("--decoding", decodings), "--seeds", seeds_of(worlds)),
            *("--run-seed", self.seed, "--runs", "runs", "--quiet", "-o", store),
            leaves=store,
        )
        return store


def seeds_of(worlds: range) -> str:
    """Worlds as the command line takes them."""
    return f"{worlds.start}:{worlds.stop}"


def repeated(flag: str, values: Iterable[str]) -> list[str]:
    """An option with several values."""
    return [word for value in values for word in (flag, value)]


def own(lab: Lab) -> Iterator[Model]:
    """Two tasks, own experience: the good episodes, and as many random answers."""
    played = lab.played("own", TWO, "local", "--model", MODEL)
    where = ("--unreserved", "--where", f"episode_return > {GOOD}")
    good = lab.derived("select", played, "good", *where, "--control", "--seed", lab.seed)
    masked = lab.derived("mask", good, "masked", *repeated("--reason", ("invalid", "no-op", "loop")))
    random = good.with_name(f"{good.name}-control")
    yield Model("random episodes (control)", "control", *lab.tuned("control", random))
    yield Model("good episodes", "filtered", *lab.tuned("filtered", good), controls=("control",))
    yield Model("good episodes, steps masked", "masked", *lab.tuned("masked", masked), controls=("control",))


def expert(lab: Lab) -> Iterator[Model]:
    """Five tasks: demonstrations of the expert."""
    played = lab.played("shown", FIVE, "expert")
    yield Model("expert demonstrations", "expert", *lab.tuned("expert", played))


def rl(lab: Lab) -> Iterator[Model]:
    """Two tasks, reinforcement learning and imitation at equal numbers of episodes, and random rewards."""
    world, half = lab.measuring(TWO), ITERATIONS // 2
    n_all = lab.n_seeds(ITERATIONS)
    n_first = n_all - lab.n_seeds(half)
    played = lab.played("explored", TWO, "local", "--model", MODEL, n=n_all)
    label = "good episodes, steps masked"
    yield Model(label, IMITATION, *lab.filtered("imitated", played, n_all), n_all * len(TWO))
    random = lab.reinforced("random", MODEL, ITERATIONS, "--env", "random_rewards:RandomRewards")
    yield Model(f"RL, {ITERATIONS} iterations, random rewards (control)", "control", *random)
    found = lab.reinforced("rl", MODEL, ITERATIONS, *world)
    yield Model(f"RL, {ITERATIONS} iterations", "rl", *found, ("control", IMITATION))
    first, n_learned = lab.filtered("half-imitated", played, n_first)
    found = lab.reinforced("imitated-rl", f"runs/{first}/merged", half, *world)
    both = (found.job, n_learned + found.n_learned, n_first * len(TWO) + found.n_played)
    yield Model(f"{label}; then RL, {half} iterations", "imitation-rl", *both, (IMITATION,))


def algorithms(lab: Lab) -> Iterator[Model]:
    """Two tasks, algorithms of reinforcement learning at equal numbers of iterations."""
    world = lab.measuring(TWO)
    for algorithm, name in (("grpo", "rl"), ("gigpo", "gigpo"), ("ppo", "ppo")):  # the first as in table rl
        found = lab.reinforced(name, MODEL, ITERATIONS, *world, "--algorithm", algorithm)
        yield Model(algorithm, algorithm, *found, controls=() if algorithm == "grpo" else ("grpo",))


def five_shown(lab: Lab) -> Model:
    """The expert's demonstrations."""
    found = lab.tuned("shown", lab.played("shown", FIVE, "expert"), "--merge")
    return Model("expert demonstrations", "expert", *found, lab.size.episodes * len(FIVE))


def five_shown_more(lab: Lab) -> Model:
    """As many demonstrations as the model of `five_shown_rl` has seen episodes."""
    n = lab.size.episodes + lab.n_seeds(OF_FIVE)
    played = lab.played("shown-more", FIVE, "expert", n=n)
    apart = lab.derived("select", played, "shown-more-apart", "--unreserved")
    found = lab.tuned("shown-more", apart, "--max-steps", STEPS * n // EPISODES)
    return Model("more expert demonstrations", "expert-more", *found, n * len(FIVE))


def five_shown_rl(lab: Lab) -> Model:
    """The expert's demonstrations, and then reinforcement learning."""
    shown = five_shown(lab)
    found = five_rl(lab, "shown-rl", f"runs/{shown.model}/merged", OF_FIVE, *lab.measuring(FIVE))
    label, name = f"expert demonstrations; then RL, {OF_FIVE} iterations", "expert-rl"
    both = ((shown.n_learned or 0) + found.n_learned, shown.n_played + found.n_played)
    return Model(label, name, found.job, *both, ("expert", "expert-more"))


def five_own(lab: Lab) -> Model:
    """Own good episodes, as many as reinforcement learning plays."""
    n = lab.n_seeds(OF_FIVE // 2)
    played = lab.played("five-explored", FIVE, "local", "--model", MODEL, n=n)
    found = lab.filtered("five-imitated", played, n)
    return Model("good episodes, steps masked", IMITATION, *found, n * len(FIVE))


def five_random(lab: Lab) -> Model:
    """Reinforcement learning with random rewards."""
    found = five_rl(lab, "five-random", MODEL, OF_FIVE // 2, "--env", "random_rewards:RandomRewards")
    return Model(f"RL, {OF_FIVE // 2} iterations, random rewards (control)", "control", *found)


def five_base_rl(lab: Lab) -> Model:
    """Reinforcement learning of the base model."""
    found = five_rl(lab, "five-rl", MODEL, OF_FIVE // 2, *lab.measuring(FIVE))
    return Model(f"RL, {OF_FIVE // 2} iterations", "rl", *found, ("control", IMITATION))


def five_rl(lab: Lab, name: str, model: str, iterations: int, *options: str) -> Reinforced:
    """Five tasks by reinforcement learning."""
    return lab.reinforced(name, model, iterations, "--task", ",".join(FIVE), *FIVE_RL, *options)


def five(lab: Lab) -> Iterator[Model]:
    """Five tasks, demonstrations of the expert and reinforcement learning."""
    yield from (row(lab) for row in (five_shown, five_shown_more, five_shown_rl))


def five_best(lab: Lab) -> Iterator[Model]:
    """Five tasks, demonstrations and reinforcement learning after them, at two temperatures."""
    yield five_shown(lab)
    yield five_shown_rl(lab)._replace(controls=("expert",))


def five_alone(lab: Lab) -> Iterator[Model]:
    """Five tasks without an expert: own episodes, reinforcement learning, and random rewards."""
    yield from (row(lab) for row in (five_own, five_random, five_base_rl))


def stale(lab: Lab) -> Iterator[Model]:
    """Two tasks, one update from episodes of earlier versions of the model, with and without correction."""
    n, start, stores, world = 64, MODEL, {}, lab.measuring(TWO)
    free = ("local", *repeated("--policy-set", ("json_mode=off", "max_new_tokens=24")), "--model")
    for age, iterations in ((16, 1), (4, 12), (1, 3), (0, 1)):
        last = ("--eval-every", str(iterations), "--merge")  # else an earlier checkpoint may be kept
        found = lab.reinforced(f"{age}-before", start, iterations, *world, *last)
        start = str(lab.folder / "runs" / found.job / "merged")
        stores[age] = lab.played(f"{age}-before", TWO, *free, start, n=n)
    yield Model("before the update", "before", found.job, found.n_learned)
    learn = ("--algorithm", "reinforce", "--seeds-per-iteration", str(n * len(TWO)))
    ways = {"corrected": (), "not corrected": repeated("--set", ("importance=none", "max_staleness=1e9"))}
    for (age, store), (way, options) in itertools.product(reversed(stores.items()), ways.items()):
        name = f"{age}-{way.replace(' ', '-')}"
        found = lab.reinforced(name, start, 1, "--from", str(store), *learn, *options)
        label = f"episodes of {age} iterations before, {way}"
        yield Model(label, name, found.job, found.n_learned, controls=("before",))


class Worlds(NamedTuple):
    """Tasks, and the first evaluation seed of each."""

    tasks: Sequence[str]
    first: int


class Experiment(NamedTuple):
    """The models and the worlds of a table."""

    models: Callable[[Any], Iterator[Model]]
    """Of a `Lab`."""
    held_out: Worlds
    tuning: Worlds | None = None
    """To choose the temperatures on; None for temperature 1 alone."""


TABLES: Mapping[str, Experiment] = {
    "own": Experiment(own, Worlds(TWO, HELD_OUT), Worlds(TWO, HELD_OUT + APART // 2)),
    "expert": Experiment(expert, Worlds(FIVE, HELD_OUT + APART), Worlds(FIVE, HELD_OUT + APART * 3 // 2)),
    "rl": Experiment(rl, Worlds(TWO, HELD_OUT + 3 * APART), Worlds(TWO, HELD_OUT + APART * 7 // 2)),
    "algorithms": Experiment(algorithms, Worlds(TWO, HELD_OUT + 4 * APART)),
    "five": Experiment(five, Worlds(FIVE, HELD_OUT + 5 * APART)),
    "five-best": Experiment(
        five_best, Worlds(FIVE, HELD_OUT + 8 * APART), Worlds(FIVE, HELD_OUT + APART * 17 // 2)
    ),
    "five-alone": Experiment(five_alone, Worlds(FIVE, HELD_OUT + 7 * APART)),
    "stale": Experiment(stale, Worlds(TWO, HELD_OUT + 6 * APART)),
}


def made(name: str, experiment: Experiment, labs: Sequence[Lab]) -> str:
    """Run a table for every training seed, and write its JSON and Markdown."""
    lab, size = labs[0], labs[0].size
    tasks, first = experiment.held_out
    held_out = range(first, first + size.worlds)
    lab.reserved(tasks, held_out)
    if experiment.tuning is not None:
        tuning = (experiment.tuning.tasks, size.others(experiment.tuning.first))
        lab.reserved(*tuning)
    by_lab = [(each, [Model("base model", BASE, each.model), *experiment.models(each)]) for each in labs]
    temperatures: Mapping[str, str] = {}
    if experiment.tuning is not None:
        temperatures = best_temperatures(
            [lab.measured(f"{name}-tuning", model, *tuning, TEMPERATURES) for model in by_lab[0][1]]
        )
    stores = [
        each.measured(name, model, tasks, held_out, sorted({"1", temperatures.get(model.name, "1")}))
        for each, found in by_lab
        for model in found
    ]
    said = {
        "table": name,
        "model": lab.model,
        "seeds": [each.seed for each in labs],
        **size._asdict(),
        "lines": lines([found for _, found in by_lab], stores, temperatures),
    }
    write_text(lab.folder / f"{name}.json", json.dumps(said, indent=1) + "\n")
    write_text(lab.folder / f"{name}.md", markdown(said["lines"]))
    return markdown(said["lines"])


def main(about: str | None, kind: type[Lab], tables: Mapping[str, Experiment], worlds: int) -> None:
    """Run the tables that are named."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    told = "; ".join(f"{name}: {(each.models.__doc__ or '').strip()}" for name, each in tables.items())
    parser.add_argument("tables", nargs="+", choices=tables, metavar="TABLE", help=told)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="the folder")
    parser.add_argument("--seeds", default="0,1,2", help="training seeds, such as 0,1,2")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="training episodes per task")
    parser.add_argument("--worlds", type=int, default=worlds, help="held-out worlds per task")
    parser.add_argument("--page", type=Path, help="put the table into this page, and its JSON beside it")
    asked = parser.parse_args()
    folder = asked.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROJECT_FILE).touch()  # reservations are kept here
    size = Size(asked.episodes, asked.worlds)
    labs = [kind(folder, int(seed), size) for seed in asked.seeds.split(",")]
    for name in asked.tables:
        text = made(name, tables[name], labs)
        print(f"\n{text}\n{folder / name}.md", flush=True)
        if asked.page is not None:
            write_text(asked.page, placed(asked.page.read_text("utf-8"), name, text))
            write_text(
                asked.page.with_suffix("") / f"{name}.json", (folder / f"{name}.json").read_text("utf-8")
            )


if __name__ == "__main__":
    main(__doc__, Lab, TABLES, worlds=60)
