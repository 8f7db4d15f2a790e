"""Reinforcement learning by playing: TRL's GRPOTrainer with environment_factory, and `rl local`, in one run.

    python bench/rl.py [--iterations 3] [--rounds 2] [--threads 1]
    python bench/rl.py --shape qwen3-0.6b [--layers N] [--iterations 2]

Both train the same network, `sample:tiny-base`, by GRPO on the task goto of BabyAI: an iteration is 8
attempts at each of 4 seeds and 4 steps of the optimizer, with LoRA of the same rank and learning rate,
answers drawn at temperature 1, and no KL penalty. Each program is a process of its own, the rounds
alternate, and medians count.

TRL plays an episode as one conversation with tool calls, which the model has never seen: TRL's copy of it
first learns such conversations of minigrid's planner, as a user of TRL would teach it. Its chat template is
none that TRL knows, so the tokenizer gets a `response_template` that reads its calls. The tool is called
`move`, since the model's tokenizer writes calls of that name in three tokens. So the two play with other
weights, and their episodes have other lengths, which are printed.

TRL is set as fast as it goes without vLLM: all attempts of an iteration are generated as one batch, an answer
has no more tokens than in trajkit, and activations are not computed twice. trajkit runs what the worker of
`rl local` runs, with the prompts of recipes/babyai; loading the model and checkpoints are in its time.

Environment steps per second are those of whole iterations, playing and learning. Learned tokens are those
that the model drew, per second in which a program does not play. There is no bound.

With `--shape` a model of a real shape with random weights plays, on a GPU where there is one, and trajkit
alone: 32 attempts of 8 steps in an iteration, answers of 8 tokens, and random rewards, so that there is
something to learn. `gap` is how much the log-probability of a token differs between the program that draws it
and the one that trains it, in nats.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again  # noqa: E402 - from this folder, wherever it is run
from trajkit._core.samples import model_path  # noqa: E402

BASE, TRL, TRAJKIT = "sample:tiny-base", "trl", "trajkit"
TASK, N_SEEDS, N_ATTEMPTS, N_UPDATES = "goto", 4, 8, 4
RATE, ANSWER, RANK = 2e-3, 24, 16
TAUGHT_SEEDS = range(5_000, 5_064)
PROMPT = "Reach the goal. Call the tool move, one action at a time, until the episode is over.\n\n"
CALLS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<call>",
            "close_pattern": r"</call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>", "content": "text"},
    },
}
"""How the tool calls of the model's chat template are read."""


class Robot:
    """BabyAI as TRL plays it, by the tool of recipes/babyai_tools."""

    n_steps = 0
    """Environment steps of all episodes."""

    def __init__(self) -> None:
        from trajkit.environments.adapters import trl_factory

        self._world = trl_factory("babyai")()

    def reset(self, **row: Any) -> str:
        """Begin the world of a row."""
        self._is_over = False
        text: str = self._world.reset(**row)
        return text

    def move(self, action: str) -> str:
        """Carry out one action.

        Args:
            action: turn left, turn right, go forward, pick up, drop or toggle
        """
        Robot.n_steps += not self._is_over
        text: str = self._world.act(action)
        self._is_over = text.endswith("The episode is over.")
        return text

    def get_reward(self) -> float:
        """The sum of the rewards so far."""
        reward: float = self._world.get_reward()
        return reward


def talk(seed: int) -> dict[str, Any]:
    """An episode of minigrid's planner as TRL would play it, every answer learned."""
    from transformers.utils import get_json_schema

    from trajkit.environments import make
    from trajkit.environments.adapters import trl_rows

    (row,) = trl_rows("babyai", [seed], tasks=[TASK], prompt=PROMPT)
    robot, expert = Robot(), make("babyai", TASK)
    expert.reset(seed)
    messages = [{"role": "user", "content": PROMPT + robot.reset(**row)}]
    is_over = False
    while not is_over:
        action = expert.expert_action()  # type: ignore[attr-defined]  # babyai has an expert
        call = {"type": "function", "function": {"name": "move", "arguments": {"action": action}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": "move", "content": robot.move(action)})
        result = expert.step(action)
        is_over = result.terminated or result.truncated
    messages.append({"role": "assistant", "content": ""})
    weights = [1.0 for message in messages if message["role"] == "assistant"]
    return {"messages": messages, "weights": weights, "tools": [get_json_schema(robot.move)]}


def write_base(folder: Path) -> None:
    """Teach the tiny model conversations of TRL's form."""
    from trajkit.formats.tokens.tokenizer import ChatTemplate
    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.tokens.tokenised import Limit, tokenise
    from trajkit.training.local.train import train

    base = model_path(BASE)
    lines = folder / "talks.jsonl"
    lines.write_text("".join(json.dumps(talk(seed)) + "\n" for seed in TAUGHT_SEEDS), encoding="utf-8")
    tokenise(lines, folder / "talks.arrow", ChatTemplate(base), limit=Limit(4096, ""))
    recipe = LocalRecipe(
        lora=None, num_train_epochs=8, per_device_train_batch_size=4, learning_rate=RATE, max_length=4096
    )
    with contextlib.redirect_stdout(None):  # transformers prints every loss
        train(base, folder / "talks.arrow", folder / "base", recipe, workspace=folder / "work")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / "base" / name).write_bytes((Path(base) / name).read_bytes())


def trl(folder: Path, base: Path, n_iterations: int) -> dict[str, float]:
    """Train with TRL; what was counted, and seconds."""
    import datasets
    import transformers
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from trajkit.environments.adapters import trl_rows

    found = {"played_s": 0.0, "tokens": 0.0}

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def _generate(self, prompts: list[Any]) -> Any:
            begun = time.perf_counter()
            made = super()._generate(prompts)
            found["played_s"] += time.perf_counter() - begun
            found["tokens"] += sum(map(sum, made[2]))  # the mask: 1 for a token that the model drew
            return made

    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.response_template = CALLS
    trainer = Timed(
        model=transformers.AutoModelForCausalLM.from_pretrained(base),
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(
            trl_rows("babyai", range(N_SEEDS * n_iterations), tasks=[TASK], prompt=PROMPT)
        ),
        environment_factory=Robot,
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"
        ),
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            num_generations=N_ATTEMPTS,
            per_device_train_batch_size=N_SEEDS * N_ATTEMPTS // N_UPDATES,
            steps_per_generation=N_UPDATES,
            max_steps=N_UPDATES * n_iterations,
            max_completion_length=3_500,
            generation_kwargs={"max_new_tokens": ANSWER},
            learning_rate=RATE,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=0,
        ),
    )
    begun = time.perf_counter()
    trainer.train()
    return {**found, "wall_s": time.perf_counter() - begun, "steps": Robot.n_steps}


def trajkit(
    folder: Path, n_iterations: int, base: str = BASE, play: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, float]:
    """Train with trajkit; the same numbers."""
    import peft  # noqa: F401 - not part of what is timed

    from trajkit.training.rl.experience import trace_of
    from trajkit.training.rl.recipe import RlRecipe
    from trajkit.training.rl.train import train_rl, trainer_class

    recipe = RlRecipe.model_validate(
        {
            "play": {
                "env": "babyai",
                "tasks": [TASK],
                "seeds": f"0:{N_SEEDS * n_iterations}",
                "config": str(ROOT / "recipes" / "babyai" / "tensorzero.toml"),
                "function": "act",
                "variant": "baseline",
                "max_new_tokens": ANSWER,
                **(play or {}),
            },
            "lora": {"r": RANK, "lora_alpha": 2 * RANK},
            "iterations": n_iterations,
            "seeds_per_iteration": N_SEEDS,
            "num_generations": N_ATTEMPTS,
            "minibatches": N_UPDATES,
            "learning_rate": RATE,
            **more,
        }
    )
    events: list[dict[str, Any]] = []
    n_drawn: list[int] = []

    def keep(_: int, played: Sequence[Any]) -> None:
        n_drawn.extend(len(row.completion) for one in played for row in trace_of(one).rows)

    trainer_class()  # what it is made from takes seconds to import
    begun = time.perf_counter()
    train_rl(
        base,
        folder / "tuned",
        recipe,
        tokenizer=model_path(base),
        workspace=folder / "work",
        tell=events.append,
        keep=keep,
    )
    wall_s = time.perf_counter() - begun
    rounds = [event for event in events if event["kind"] == "iteration"]
    return {
        "wall_s": wall_s,
        "played_s": sum(each["played_s"] for each in rounds),
        "steps": sum(each["n_steps"] for each in rounds),
        "tokens": sum(n_drawn),
        "gap": statistics.fmean(each["drift"] for each in rounds),
        "last_s": rounds[-1]["seconds"],
        "last_played_s": rounds[-1]["played_s"],
        "last_steps": rounds[-1]["n_steps"],
    }


def at_size(shape: str, layers: int, n_iterations: int) -> None:
    """Train a random model of a real shape, and print what the last iteration took."""
    import torch

    from trajkit import random_model
    from trajkit.training.rl import round as played_round

    sys.path.insert(0, str(ROOT / "recipes" / "environments"))
    gaps: list[float] = []
    correct = played_round.correction

    def correction(now: Any, drawn: Any, mask: Any, recipe: Any) -> Any:
        gaps.append(float(((now - drawn).abs() * mask).max()))
        return correct(now, drawn, mask, recipe)

    played_round.correction = correction
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with torch.device("cuda" if on_gpu else "cpu"):
            random_model(shape, output=folder / "model", layers=layers or None)
        play = {"env": "random_rewards:RandomRewards", "max_new_tokens": 8, "max_episode_steps": 8}
        with contextlib.redirect_stdout(sys.stderr):
            found = trajkit(folder, n_iterations, str(folder / "model"), play, per_device_train_batch_size=16)
    learning_s = found["last_s"] - found["last_played_s"]
    print(
        f"{torch.cuda.get_device_name() if on_gpu else 'no GPU'}, {shape}: {found['wall_s']:.1f} s in all;"
        f" the last iteration {found['last_s']:.1f} s, of which playing {found['last_played_s']:.1f} s,"
        f" {found['last_steps'] / found['last_s']:.1f} environment steps/s,"
        f" {found['tokens'] / n_iterations / learning_s:,.0f} learned tokens/s,"
        f" {torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0:.1f} GB,"
        f" gap {found['gap']:.2g} on average and {max(gaps):.2g} at most"
    )


def child(program: str, folder: Path, arguments: argparse.Namespace) -> None:
    """One training in this process; prints what it came to."""
    import torch

    torch.set_num_threads(arguments.threads)
    with contextlib.redirect_stdout(sys.stderr):
        if program == TRL:
            found = trl(folder, folder / "base", arguments.iterations)
        else:
            found = trajkit(folder, arguments.iterations)
    print(json.dumps(found))


def run(program: str, base: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """One training in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "base").symlink_to(base / "base")
        options = [f"--{name}={getattr(arguments, name)}" for name in ("iterations", "threads")]
        words = ("--child", program, "--folder", folder, *options)
        found: dict[str, float] = again(__file__, *words, TRL_EXPERIMENTAL_SILENCE="1")
        return found


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", help="of a random model that plays instead of the tiny one")
    parser.add_argument("--layers", type=int, default=0, help="0: all that the shape has")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.shape:
        at_size(arguments.shape, arguments.layers, arguments.iterations)
        return 0
    if arguments.child:
        child(arguments.child, arguments.folder, arguments)
        return 0
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    n_episodes = N_SEEDS * N_ATTEMPTS * arguments.iterations
    found: dict[str, list[dict[str, float]]] = {TRL: [], TRAJKIT: []}
    with tempfile.TemporaryDirectory() as temporary:
        write_base(Path(temporary))
        for _ in range(arguments.rounds):
            for program, all_of in found.items():
                all_of.append(run(program, Path(temporary), arguments))
    speeds = {
        program: statistics.median(one["steps"] / one["wall_s"] for one in all_of)
        for program, all_of in found.items()
    }
    for program, all_of in found.items():
        middle = {name: statistics.median(one[name] for one in all_of) for name in all_of[0]}
        learning_s = middle["wall_s"] - middle["played_s"]
        print(
            f"  {program:8} {middle['wall_s']:6.1f} s  {speeds[program]:6.1f} environment steps/s"
            f"  {middle['steps'] / n_episodes:5.1f} steps an episode"
            f"  playing {middle['played_s'] / middle['wall_s']:.0%}"
            f"  {middle['tokens'] / learning_s:7,.0f} learned tokens/s"
        )
    speed_up = speeds[TRAJKIT] / speeds[TRL]
    print(f"  speed    {speed_up:.1f} times TRL's  (no bound)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
