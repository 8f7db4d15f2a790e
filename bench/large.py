"""Every command over stores of one, three and ten million steps: time, processor time and peak memory.

    python bench/large.py [--sizes 1,3,10] [--only WORDS] [--folder FOLDER] [-o docs/large.json]

The stores are synthetic: agent-like episodes of 20 steps, four attempts at each seed, whose prompts grow; a
store keeps the new part of a prompt, about 0.3 kB. Each command runs as a process of its own. What it wrote
is removed before the next, except what later commands read: at most 15 GB of disk for ten million steps.

Results go into a JSON file, which keeps those of earlier runs with other sizes and commands; the picture goes
beside it as SVG. `--only` runs the commands whose names begin so. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import machine, measured  # noqa: E402 -- found by the line above

MAX_MB = 24_000.0
MAX_GROWTH = 1.5
"""Most time per step at the largest size, against that at the smallest."""
LINES = 3
SCORER = "def length(episode):\n    return float(len(episode.steps))\n"

COMMANDS: dict[str, tuple[str, ...]] = {
    "info": ("info", "store"),
    "stats": ("stats", "store"),
    "query": ("query", "store", "SELECT action_executed, count(*) FROM steps GROUP BY ALL"),
    "show": ("show", "store", "0"),
    "select": ("select", "store", "--where", "0 < avg < 1 and rank == 1", "-o", "out"),
    "dedupe --exact": ("dedupe", "store", "--exact", "-o", "out"),
    "dedupe --episodes": ("dedupe", "store", "--episodes", "-o", "out"),
    "dedupe --near": ("dedupe", "store", "--near", "0.9", "-o", "out"),
    "split": ("split", "store", "-o", "sides"),
    "split --by prompt": ("split", "store", "--by", "prompt", "--ratio", "train=0.9,val=0.1", "-o", "out"),
    "leak": ("leak", "sides/train", "sides/val"),
    "mask": ("mask", "store", "--reason", "loop", "-o", "out"),
    "weight": ("weight", "store", "--scheme", "grpo", "-o", "out"),
    "score": ("score", "store", "--with", "scorer.py:length", "--name", "length", "-o", "out"),
    "redact": ("redact", "store", "--no-gate", "-o", "out"),
    "merge": ("merge", "sides/train", "sides/val", "-o", "out"),
    "diff": ("diff", "store", "sides/train"),
    "pairs": ("pairs", "store", "--margin", "0.1", "--no-verify", "-o", "out"),
    "push --dry-run": ("push", "store", "me/large", "--license", "apache-2.0", "--dry-run"),
    "convert": ("convert", "store", "--to", "openai-sft", "--unit", "episode", "-o", "train.jsonl"),
    "tokens": ("tokens", "train.jsonl", "--model", "sample:tiny-base"),
    "validate": ("validate", "train.jsonl", "--target", "openai"),
}
"""The commands in the order in which they need each other."""
MADE_BY = {"split": "sides", "convert": "train.jsonl"}
"""What later commands read, by the command that makes it."""
MAY_FAIL = ("leak", "validate", "push --dry-run")


def run(folder: Path, n_steps: int, only: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Make a store and yield what each command takes over it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "scorer.py").write_text(SCORER)
    # in a process of its own: a child begins with the peak of the process that started it
    made = "import sys; from bench.curate import make_store; from pathlib import Path; "
    made += f"make_store(Path(sys.argv[1]), {n_steps}, n_lines={LINES}, grows=True)"
    subprocess.run([sys.executable, "-c", made, str(folder / "store")], check=True, cwd=ROOT)
    asked = [name for name in COMMANDS if name.startswith(only)]
    read = {word.partition("/")[0] for name in asked for word in COMMANDS[name]}
    for name, command in COMMANDS.items():
        if name not in asked and MADE_BY.get(name) not in read:
            continue
        found = measured((*command, "--json"), folder, may_fail=name in MAY_FAIL)
        yield {"command": name, "million_steps": n_steps / 1e6, **found._asdict()}
        for path in folder.glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder)


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw time and memory over the number of steps, a field for each command."""
    import altair as alt
    import vl_convert

    def field(measure: str, title: str) -> Any:
        points = alt.Chart(alt.Data(values=results)).mark_line(point=True)
        sizes = alt.Axis(values=sorted({each["million_steps"] for each in results}))
        x = alt.X("million_steps:Q", title="million steps", axis=sizes, scale=alt.Scale(type="log"))
        y = alt.Y(f"{measure}:Q", title=None)
        names = alt.Facet("command:N", title=title, sort=list(COMMANDS), columns=6)
        return points.encode(x=x, y=y, facet=names).properties(width=110, height=70)

    both = alt.vconcat(field("cpu_s", "seconds of processors"), field("peak_mb", "peak memory, MB"))
    path.write_text(vl_convert.vegalite_to_svg(both.to_dict()), encoding="utf-8")


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a table of Markdown: seconds, of them of processors, and megabytes."""
    sizes = sorted({each["million_steps"] for each in results})
    by_place = {(each["command"], each["million_steps"]): each for each in results}
    lines = [
        "| command |" + "".join(f" {size:g} million steps |" for size in sizes),
        "|---|" + "---|" * len(sizes),
    ]
    for name in COMMANDS:
        cells = [
            f"{at['seconds']:,.0f} s ({at['cpu_s']:,.0f} s), {at['peak_mb']:,.0f} MB" if at else "–"
            for size in sizes
            for at in [by_place.get((name, size))]
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def missed(results: list[dict[str, Any]]) -> list[str]:
    """Say which limits do not hold."""
    found = [f"{each['command']}: {each['peak_mb']:,.0f} MB" for each in results if each["peak_mb"] > MAX_MB]
    for name in COMMANDS:
        own = sorted((each["million_steps"], each["cpu_s"]) for each in results if each["command"] == name)
        if len(own) > 1:
            (small, first_s), (large, last_s) = own[0], own[-1]
            growth = last_s / large / (first_s / small)
            found += [f"{name}: {growth:.1f} times as long per step"] if growth > MAX_GROWTH else []
    return found


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1,3", help="millions of steps")
    parser.add_argument("--only", default="", help="begin of the names of commands, between commas")
    parser.add_argument("--folder", type=Path, help="where stores are written; default: a temporary folder")
    parser.add_argument("-o", "--output", type=Path, help="file of the results; default: only print them")
    options = parser.parse_args()
    has_file = options.output is not None and options.output.is_file()
    kept = json.loads(options.output.read_text())["results"] if has_file else []
    by_place = {(each["command"], each["million_steps"]): each for each in kept}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / "large"
        for size in options.sizes.split(","):
            n_steps = round(float(size) * 1e6) if size else 0
            for each in run(folder, n_steps, tuple(options.only.split(","))) if n_steps else ():
                by_place[each["command"], each["million_steps"]] = each
                print(
                    f"{each['million_steps']:6g} million  {each['command']:20} {each['seconds']:8.1f} s  of "
                    f"processors {each['cpu_s']:8.1f} s  peak {each['peak_mb']:7,.0f} MB",
                    flush=True,
                )
                if options.output is not None:
                    said = {"machine": machine(), "results": list(by_place.values())}
                    options.output.write_text(json.dumps(said, indent=1) + "\n")
    results = list(by_place.values())
    print(table(results))
    if options.output is not None:
        draw(results, options.output.with_suffix(".svg"))
    for text in (misses := missed(results)):
        print(f"  MISSED  {text}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
