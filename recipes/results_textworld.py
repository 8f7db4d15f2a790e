"""Make the tables of docs/results.md again: TextWorldExpress, with a tiny model that is made first.

needs    trajkit[textworld,local], Java 17 or newer; no key, no network, no GPU
minutes  20 to 40 for both tables on two cores; what is done is not done again
cost     none
leaves   the folder of -o: the base, every store, model and evaluation, and each table as Markdown and JSON

Run as `python recipes/results_textworld.py textworld gap -o results`; without a table it says which there
are. Each step is a command of trajkit, printed before it runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from results import Lab, Size
from results_table import placed
from results_textworld_table import Line, facts, markdown
from tiny_textworld import GAME, HISTORY, PARAMETERS

from trajkit._core.files import write_text
from trajkit._core.settings import PROJECT_FILE

HERE = Path(__file__).resolve().parent
BASE = "cook"
DEV, TEST = f"{GAME}-dev", f"{GAME}-test"
FIRST = {GAME: 900, DEV: 10_000, TEST: 20_000}
"""The first world of each fold to measure on, among those that the package names for it."""
APART = 200
"""Between the training worlds of two training seeds."""
MOST_STEPS = 20
"""More than twice as many as the expert takes."""
CONCURRENCY = 10
RECIPE = ("--learning-rate", "5e-3", "--max-steps", "120", "--per-device-train-batch-size", "16")


class Worlds(NamedTuple):
    """What is played, and how answers are drawn: one evaluation for all models that play like this."""

    fold: str = GAME
    is_learned: bool = False
    """The worlds that the model learned, in place of others of the fold."""
    decoding: str = "temperature=1"
    answer: str = "schema"
    """`schema` holds it to the valid actions, `object` to JSON alone."""

    @property
    def name(self) -> str:
        """Its store."""
        return "-".join(
            [self.fold, *["learned"] * self.is_learned, self.decoding.partition("=")[0], self.answer]
        )


class Cell(NamedTuple):
    """A model on some worlds."""

    worlds: Worlds
    is_tuned: bool = True
    is_spaced: bool = False
    """The prompt ends in a space, as it did not in training."""


CELLS: Mapping[str, Cell] = {
    "reference": Cell(Worlds()),
    "learned": Cell(Worlds(is_learned=True)),
    "dev": Cell(Worlds(DEV)),
    "test": Cell(Worlds(TEST)),
    "greedy": Cell(Worlds(decoding="greedy")),
    "free": Cell(Worlds(answer="object")),
    "space": Cell(Worlds(), is_spaced=True),
    "space-free": Cell(Worlds(answer="object"), is_spaced=True),
    "together": Cell(Worlds(TEST, decoding="greedy", answer="object"), is_spaced=True),
    "before-dev": Cell(Worlds(DEV), is_tuned=False),
    "before-test": Cell(Worlds(TEST), is_tuned=False),
}
"""What is measured, by the name of the variant. Those on the same worlds are one evaluation."""

TURN = "assistant\n{% endif -%}"
SPACED = "assistant\n{{ ' ' }}{% endif -%}"
"""The end of the chat template, and what takes its place."""


class Kitchen(Lab):
    """The steps of one training seed."""

    def base(self) -> str:
        """The base model, made once for all training seeds."""
        goal = self.folder / BASE
        if not goal.exists():
            print("$ python recipes/tiny_textworld.py", goal, flush=True)
            subprocess.run([sys.executable, str(HERE / "tiny_textworld.py"), str(goal)], check=True)
        return str(goal)

    def shown(self) -> Path:
        """The expert's episodes on this training seed's worlds."""
        store, first = self.store("expert"), self.seed * APART
        self.trajkit(
            *("rollout", "textworld", "--game", GAME, "--policy", "expert", *_kitchen()),
            *("--seeds", f"{first}:{first + self.size.episodes}", "--run-seed", self.seed),
            *("--purpose", "train", "--concurrency", CONCURRENCY, "--quiet", "-o", store),
            leaves=store,
        )
        return store

    def tuned_on_it(self) -> str:
        """The model that learned from them: the name of its job."""
        job = f"expert-{self.seed}"
        self.trajkit(
            *("sft", "local", "--train", self.shown(), "--val-fraction", 0, "--model", self.base(), *RECIPE),
            *("--seed", self.seed, "--name", job, "--runs", "runs", "--yes"),
            leaves=self.folder / "runs" / job / "model" / "adapter_config.json",
        )
        return job

    def tasted(self, worlds: Worlds) -> Path:
        """The episodes of every model that plays these worlds like this."""
        store = self.store(f"evaluated/{worlds.name}")
        players = {name: cell for name, cell in CELLS.items() if cell.worlds == worlds}
        named = ",".join(f"{name}={self.player(cell)}" for name, cell in players.items())
        first = self.seed * APART if worlds.is_learned else FIRST[worlds.fold]
        self.trajkit(
            *("evaluate", "textworld", "--variants", named, "--game", worlds.fold, *_kitchen()),
            *("--seeds", f"{first}:{first + self.size.worlds}", "--run-seed", self.seed),
            *("--decoding", worlds.decoding, "--policy-set", f"json_mode={worlds.answer}"),
            *("--policy-set", "max_new_tokens=24", "--max-steps", MOST_STEPS),
            *("--concurrency", CONCURRENCY, *(("--allow-leak",) if worlds.is_learned else ())),
            *("--runs", "runs", "--quiet", "-o", store),
            leaves=store,
        )
        return store

    def player(self, cell: Cell) -> str:
        """The model of a cell."""
        if not cell.is_tuned:
            return self.base()
        return self.spaced(self.tuned_on_it()) if cell.is_spaced else self.tuned_on_it()

    def spaced(self, job: str) -> str:
        """A copy of a tuned model whose prompts end in a space."""
        goal = self.folder / "spaced" / job
        if not goal.exists():
            shutil.copytree(self.folder / "runs" / job / "model", goal)
            template = goal / "chat_template.jinja"
            text = template.read_text("utf-8")
            if TURN not in text:
                raise SystemExit(f"{template} does not end as expected")
            template.write_text(text.replace(TURN, SPACED), "utf-8")
        return str(goal)


def _kitchen() -> list[str]:
    settings = [word for name, value in PARAMETERS.items() for word in ("--env-set", f"{name}={value}")]
    return [*settings, "--history", str(HISTORY)]


class Row(NamedTuple):
    """A line of a table."""

    label: str
    name: str
    """The cell."""
    baseline: str
    """The cell that it is compared with; its own for none."""


class Table(NamedTuple):
    """What a table shows."""

    about: str
    rows: Sequence[Row]


TABLES = {
    "textworld": Table(
        "demonstrations of the expert, before and after, on the development and the test fold",
        (
            Row("before, development fold", "before-dev", "before-dev"),
            Row("expert demonstrations, development fold", "dev", "before-dev"),
            Row("before, test fold", "before-test", "before-test"),
            Row("expert demonstrations, test fold", "test", "before-test"),
        ),
    ),
    "gap": Table(
        "what makes an evaluation worse than the collection while training, one factor at a time",
        (
            Row("training fold, temperature 1, valid actions only", "reference", "reference"),
            Row("worlds: those that it learned", "learned", "reference"),
            Row("worlds: development fold", "dev", "reference"),
            Row("worlds: test fold", "test", "reference"),
            Row("decoding: greedy", "greedy", "reference"),
            Row("validity: any answer", "free", "reference"),
            Row("boundary: a space more", "space", "reference"),
            Row("boundary and validity", "space-free", "reference"),
            Row("all: test fold, greedy, any answer, a space more", "together", "reference"),
        ),
    ),
}


def made(table: Table, labs: Sequence[Kitchen]) -> list[dict[str, Any]]:
    """Run a table for every training seed: its lines with their numbers."""
    stores: dict[str, dict[int, Path]] = {row.name: {} for row in table.rows}
    for lab in labs:
        for name, found in stores.items():
            found[lab.seed] = lab.tasted(CELLS[name].worlds)
    return facts(
        [
            Line(row.label, row.name, stores[row.name], CELLS[row.name].worlds.decoding, row.baseline)
            for row in table.rows
        ]
    )


def main() -> None:
    """Make the tables that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told = "; ".join(f"{name}: {table.about}" for name, table in TABLES.items())
    parser.add_argument("tables", nargs="+", choices=TABLES, metavar="TABLE", help=told)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="the folder")
    parser.add_argument("--seeds", default="0,1,2", help="training seeds, such as 0,1,2")
    parser.add_argument("--episodes", type=int, default=120, help="of the expert, to learn from")
    parser.add_argument("--worlds", type=int, default=30, help="of every fold, to measure on")
    parser.add_argument("--page", type=Path, help="put the table into this page, and its JSON beside it")
    asked = parser.parse_args()
    folder = asked.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROJECT_FILE).touch()  # what is reserved is reserved here
    size = Size(asked.episodes, asked.worlds)
    labs = [Kitchen(folder, int(seed), size) for seed in asked.seeds.split(",")]
    for name in asked.tables:
        said = {
            "table": name,
            "made_by": Path(__file__).name,
            "model": BASE,
            **size._asdict(),
            "lines": made(TABLES[name], labs),
        }
        text = markdown(said["lines"])
        write_text(folder / f"{name}.json", json.dumps(said, indent=1) + "\n")
        write_text(folder / f"{name}.md", text)
        print(f"\n{text}\n{folder / name}.md", flush=True)
        if asked.page is not None:
            write_text(asked.page, placed(asked.page.read_text("utf-8"), name, text))
            write_text(asked.page.with_suffix("") / f"{name}.json", json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
