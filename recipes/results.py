"""Make the tables of docs/results.md again: BabyAI, with the tiny model that comes with trajkit.

needs    trajkit[babyai,local,tensorzero]; no key, no network, no GPU
minutes  5 to 30 a table on two cores; what is done is not done again
cost     none
leaves   the folder of -o: every store, model and evaluation, and each table as Markdown and JSON

Run as `python recipes/results.py filter -o results`; without a table it says which there are. Each step is a
command of trajkit, printed before it runs. Several training seeds may run side by side in one folder
(`--seeds 1`), and the table is made of those that are named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from results_table import BASE, Line, Model, facts, markdown, placed

from trajkit import open_dataset
from trajkit._core.files import write_text
from trajkit._core.settings import PROJECT_FILE
from trajkit.training.job import TuneJob

ROOT = Path(__file__).resolve().parent.parent
MODEL = "sample:tiny-base"
TWO = ("goto", "pickup")
FIVE = (*TWO, "open", "putnext", "pick_up_seq_go_to")
HELD_OUT = 100_000
APART = 10_000  # between the worlds of two training seeds
RECIPE = ("--learning-rate", "5e-3", "--max-steps", "150", "--per-device-train-batch-size", "32")
GOOD = 0.5


class Size(NamedTuple):
    """How much is played."""

    episodes: int
    """Of every task, to learn from."""
    worlds: int
    """Of every task, held out to measure on."""


class Agent(NamedTuple):
    """Whose prompts are played, learned and measured."""

    config: Path
    variant: str
    prefix: str = ""
    """Of the names of its stores and jobs."""


ACT = Agent(ROOT / "recipes" / "babyai" / "tensorzero.toml", "baseline")
TOOLS = Agent(ROOT / "recipes" / "babyai_tools" / "tensorzero.toml", "tools", "tools-")


class Lab:
    """One folder, one training seed and one agent; a step whose result is there is not done again.

    Args:
        folder: Where everything is left.
        seed: Of the worlds, the draws and the training.
        size: How much is played.
        agent: Whose prompts they are.
    """

    def __init__(self, folder: Path, seed: int, size: Size, agent: Agent = ACT) -> None:
        self.folder, self.seed, self.size, self.agent = folder, seed, size, agent

    def store(self, name: str) -> Path:
        """A store of this training seed."""
        return self.folder / "stores" / f"{self.agent.prefix}{name}-{self.seed}"

    def trajkit(self, *arguments: str | int | Path, leaves: Path | None = None) -> None:
        """Run a command, unless what it leaves is there."""
        if leaves is not None and leaves.exists():
            return
        words = ["trajkit", *map(str, arguments)]
        print("$", *words, flush=True)
        started = time.monotonic()
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{done.stdout}{done.stderr}\nexit code {done.returncode}")
        print(f"  {time.monotonic() - started:.0f} s", flush=True)

    def reserve(self) -> None:
        """Keep the worlds to measure on for nothing else: whoever would play or learn them is refused."""
        self.trajkit("reserve", "babyai", *_tasks(FIVE), "--seeds", self._held_out)

    @property
    def _held_out(self) -> str:
        return f"{HELD_OUT}:{HELD_OUT + self.size.worlds}"

    def played(self, name: str, model: str, tasks: Sequence[str], *, turn: int = 0) -> Path:
        """Episodes of a model, or of the expert, on training worlds of its own."""
        store, first = self.store(name), self.seed * APART + turn * self.size.episodes
        who = ("--policy", "expert") if model == "expert" else ("--policy", "local", "--model", model)
        self.trajkit(
            *("rollout", "babyai", *who, *_tasks(tasks), "--function", "act"),
            *("--config", self.agent.config, "--variant", self.agent.variant),
            *("--seeds", f"{first}:{first + self.size.episodes}"),
            *("--run-seed", self.seed, "--purpose", "train", "--quiet", "-o", store),
            leaves=store,
        )
        return store

    def derived(self, verb: str, store: Path, name: str, *options: str | int) -> Path:
        """A store made of another one."""
        goal = self.store(name)
        self.trajkit(verb, store, *options, "-o", goal, leaves=goal)
        return goal

    def filtered(self, store: Path, name: str, where: str) -> tuple[Path, Path]:
        """The episodes for which a condition holds, and as much drawn from all of them."""
        goal = self.derived(
            "select", store, name, "--unreserved", "--where", where, "--control", "--seed", self.seed
        )
        return goal, goal.with_name(f"{goal.name}-control")

    def drawn_like(self, store: Path, pool: Path, name: str) -> Path:
        """Episodes drawn from a pool, with as many learned steps as a store has, to within an episode."""
        wanted, (n_steps, n_episodes) = learned(store)[0], learned(pool)
        n = max(1, round(wanted * n_episodes / n_steps))
        return self.derived("select", pool, name, "--unreserved", "--sample", n, "--seed", self.seed)

    def merged(self, stores: Sequence[Path], name: str) -> Path:
        """All episodes of some stores."""
        goal = self.store(name)
        self.trajkit("merge", *stores, "-o", goal, leaves=goal)
        return goal

    def tuned(self, name: str, store: Path, model: str = MODEL) -> str:
        """A model tuned on a store, by the name of its job."""
        job = f"{self.agent.prefix}{name}-{self.seed}"
        self.trajkit(
            *("sft", "local", "--train", store, "--val-fraction", 0, "--model", model, *RECIPE),
            *("--seed", self.seed, "--name", job, "--runs", "runs", "--yes"),
            leaves=self.folder / "runs" / job / "model" / "adapter_config.json",
        )
        return job

    def measured(self, model: Model, tasks: Sequence[str]) -> Path:
        """A model's episodes on the worlds that are held out."""
        name = f"{self.agent.prefix}{model.name}-{len(tasks)}-{self.seed}"
        store = self.folder / "stores" / "evaluated" / name
        self.trajkit(
            *("evaluate", "babyai", "--variants", f"{model.name}={model.model}", *_tasks(tasks)),
            *("--config", self.agent.config, "--template-variant", self.agent.variant),
            *("--decoding", "temperature=1"),
            *("--seeds", self._held_out, "--run-seed", self.seed),
            *("--runs", "runs", "--quiet", "-o", store),
            leaves=store,
        )
        return store


def _tasks(tasks: Sequence[str]) -> list[str]:
    return [word for task in tasks for word in ("--task", task)]


def learned(store: Path) -> tuple[int, int]:
    """Steps of a store that are learned, and its episodes."""
    found = open_dataset(store)
    weights = found.arrow("steps").read_all()["loss_weight"].to_pylist()
    return sum(weight > 0 for weight in weights), found.n_episodes


Table = Callable[[Lab], Iterator[Model]]


def of_own(lab: Lab) -> Iterator[Model]:
    """Five tasks, own experience: episodes with a return above the threshold, and as much at random."""
    store = lab.played("own-five", MODEL, FIVE)
    good, control = lab.filtered(store, "own-five-good", f"episode_return > {GOOD}")
    yield Model("random sample of equal size", "own-control", lab.tuned("own-control", control))
    yield Model("filtered", "own-filtered", lab.tuned("own-filtered", good), "own-control")


def of_expert(lab: Lab) -> Iterator[Model]:
    """Five tasks, demonstrations of the expert."""
    played = lab.played("expert-five", "expert", FIVE)
    store = lab.derived("select", played, "expert-five-learned", "--unreserved")
    yield Model("expert demonstrations", "expert", lab.tuned("expert", store))


def _own_two(lab: Lab) -> Path:
    return lab.played("own-two", MODEL, TWO)


def choosing(lab: Lab) -> Iterator[Model]:
    """Two tasks, own experience: the good episodes, and as much at random."""
    good, control = lab.filtered(_own_two(lab), "good", f"episode_return > {GOOD}")
    yield Model("random sample of equal size", "good-control", lab.tuned("good-control", control))
    yield Model("filtered", "good", lab.tuned("good", good), "good-control")


def filtering(lab: Lab) -> Iterator[Model]:
    """Two tasks: all episodes, the good ones, and what further steps of choosing add."""
    store = _own_two(lab)
    good, good_control = lab.filtered(store, "good", f"episode_return > {GOOD}")
    unique = lab.derived("dedupe", good, "unique", "--exact")
    masked = lab.derived("mask", unique, "masked", *_words("--reason", "invalid", "no-op", "loop"))
    weighted = lab.derived("weight", masked, "weighted", "--scheme", "return", "--normalize", "all")
    yield Model("random sample as filtered", "good-control", lab.tuned("good-control", good_control))
    yield Model("filtered", "good", lab.tuned("good", good), "good-control")
    control = lab.drawn_like(unique, store, "unique-control")
    yield Model("random sample as deduplicated", "unique-control", lab.tuned("unique-control", control))
    yield Model("+ deduplicated", "unique", lab.tuned("unique", unique), "unique-control")
    control = lab.drawn_like(masked, store, "masked-control")
    yield Model("random sample as masked", "masked-control", lab.tuned("masked-control", control))
    yield Model("+ step masks", "masked", lab.tuned("masked", masked), "masked-control")
    yield Model("+ return weights", "weighted", lab.tuned("weighted", weighted), "masked-control")
    everything = lab.derived("select", store, "everything", "--unreserved")
    yield Model("all episodes, unfiltered", "unfiltered", lab.tuned("unfiltered", everything))


def _words(flag: str, *values: str) -> list[str]:
    return [word for value in values for word in (flag, value)]


def thresholds(lab: Lab) -> Iterator[Model]:
    """Two tasks: which return makes an episode good."""
    store = _own_two(lab)
    conditions = {"success": "outcome = 'success'", "above-0.3": "episode_return > 0.3"}
    conditions |= {"good": f"episode_return > {GOOD}", "above-0.7": "episode_return > 0.7"}
    for name, where in conditions.items():
        good, control = lab.filtered(store, name, where)
        yield Model(f"random, as {where}", f"{name}-control", lab.tuned(f"{name}-control", control))
        yield Model(where, name, lab.tuned(name, good), f"{name}-control")


def rounds(lab: Lab) -> Iterator[Model]:
    """Two tasks, three rounds: play, choose, train the base on all that was chosen, play again with that."""
    model, (chosen, control) = MODEL, lab.filtered(_own_two(lab), "good", f"episode_return > {GOOD}")
    played, good, job = [_own_two(lab)], [chosen], "good"
    for number in range(1, 4):
        if number > 1:
            job = f"round-{number}"
            played.append(lab.played(job, model, TWO, turn=number - 1))
            good.append(lab.filtered(played[-1], f"{job}-good", f"episode_return > {GOOD}")[0])
            chosen = lab.merged(good, f"rounds-to-{number}")
            control = lab.drawn_like(chosen, lab.merged(played, f"played-to-{number}"), f"{job}-control")
        yield Model(
            f"random sample as round {number}", f"{job}-control", lab.tuned(f"{job}-control", control)
        )
        model = lab.tuned(job, chosen)
        yield Model(f"round {number}", job, model, f"{job}-control")


class Experiment(NamedTuple):
    """What a table compares, on which tasks."""

    table: Table
    tasks: Sequence[str]
    agent: Agent = ACT


TABLES: Mapping[str, Experiment] = {
    "own": Experiment(of_own, FIVE),
    "expert": Experiment(of_expert, FIVE),
    "choose": Experiment(choosing, TWO),
    "filter": Experiment(filtering, TWO),
    "rounds": Experiment(rounds, TWO),
    "thresholds": Experiment(thresholds, TWO),
    "tools": Experiment(choosing, TWO, TOOLS),
}


def lines(
    labs: Sequence[Lab], table: Table, tasks: Sequence[str]
) -> tuple[list[Line], dict[int, list[Path]]]:
    """Run a table for every training seed: its lines, and the evaluation stores by training seed."""
    base = Model("before", BASE, MODEL)
    jobs: dict[Model, list[TuneJob]] = {base: []}
    stores: dict[int, list[Path]] = {}
    for lab in labs:
        stores[lab.seed] = [lab.measured(base, tasks)]
        for model in table(lab):
            stores[lab.seed].append(lab.measured(model, tasks))
            told = TuneJob.model_validate_json((lab.folder / "runs" / model.model / "job.json").read_text())
            jobs.setdefault(model._replace(model=""), []).append(told)
    return [Line(model, *_size_of(found)) for model, found in jobs.items()], stores


def _size_of(jobs: Sequence[TuneJob]) -> tuple[int, int]:
    n = max(1, len(jobs))
    return round(sum(job.train.n_episodes for job in jobs) / n), round(
        sum(job.train.n_learned for job in jobs) / n
    )


def _about(experiment: Experiment) -> str:
    told = (experiment.table.__doc__ or "").strip()
    return told if experiment.agent == ACT else f"{told} The agent calls the tool of `recipes/babyai_tools`."


def main() -> None:
    """Run the tables that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told = "; ".join(f"{name}: {_about(experiment)}" for name, experiment in TABLES.items())
    parser.add_argument("tables", nargs="+", choices=TABLES, metavar="TABLE", help=told)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="the folder")
    parser.add_argument("--seeds", default="0,1,2", help="training seeds, such as 0,1,2")
    parser.add_argument("--episodes", type=int, default=120, help="of every task, to learn from")
    parser.add_argument("--worlds", type=int, default=75, help="of every task, to measure on")
    parser.add_argument("--page", type=Path, help="put the table into this page, and its JSON beside it")
    asked = parser.parse_args()
    folder = asked.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROJECT_FILE).touch()  # what is reserved is reserved here
    size = Size(asked.episodes, asked.worlds)
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    Lab(folder, seeds[0], size).reserve()
    for name in asked.tables:
        table, tasks, agent = TABLES[name]
        labs = [Lab(folder, seed, size, agent) for seed in seeds]
        made = facts(*lines(labs, table, tasks), tasks)
        text = markdown(made)
        said = {"table": name, "model": MODEL, **size._asdict(), "lines": made}
        write_text(folder / f"{name}.json", json.dumps(said, indent=1) + "\n")
        write_text(folder / f"{name}.md", text)
        print(f"\n{text}\n{folder / name}.md", flush=True)
        if asked.page is not None:
            write_text(asked.page, placed(asked.page.read_text("utf-8"), name, text))
            write_text(asked.page.with_suffix("") / f"{name}.json", json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
