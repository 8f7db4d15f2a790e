"""Learning from long conversations: TRL's SFTTrainer in its best setting against trajkit, in one run.

    python bench/train.py [--episodes 32] [--turns 12] [--rounds 3] [--epochs 2] [--threads N]

All train the same model (a Llama of 0.7 million weights, taught beforehand by noisy answers), with LoRA of
the same rank, for as many epochs, over the same steps of synthetic episodes, with as many answers in a batch.
Each program is a process of its own, the rounds alternate, and the medians are compared.

trl        a row for each episode as `messages`, with `assistant_only_loss`: TRL's best setting for these rows
trl-steps  a row for each step, prompt and completion as messages, completion-only loss: what notebooks do
trajkit    a row for each episode whose conversation only grows, all its answers learned

A batch of trl and trajkit is one episode, so there is no padding that packing could fill. All use a GPU where
there is one. The bounds are against trl.

Distinct assistant tokens are those of all answers, each counted once and once per epoch. The time is that of
`trainer.train()`; trajkit's has loading the model and writing the adapter in it too. Afterwards all models
are measured on the same validation episodes, by the mean loss of their answers' tokens. More numbers are for
agents that write their history into one message, whose steps cannot be merged: they are printed and have no
bound. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again, machine  # noqa: E402 -- found by the line above

MIN_SPEED_UP = 0.9
MAX_LOSS_RATIO = 1.01
TRL, TRL_STEPS, TRAJKIT = "trl", "trl-steps", "trajkit"
RATE, BATCH, RANK = 2e-3, 12, 16
_COLOURS = ("red", "blue", "green", "grey", "purple", "yellow")
_THINGS = ("ball", "key", "box", "door")
TEMPLATE = (
    "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


class Clock(NamedTuple):
    """Seconds that pass, and those that processors worked: the second tells on a machine that others use."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Clock:
        """Begin to measure."""
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> Clock:
        """What it took since then."""
        now = Clock.now()
        return Clock(now.wall_s - self.wall_s, now.cpu_s - self.cpu_s)


def talks(
    n: int, n_turns: int, seed: int, *, is_appended: bool, noise: float = 0.0
) -> list[list[dict[str, str]]]:
    """Episodes in which the answer follows from what was just seen, but for some noise.

    As one talk each, or as a talk for each step.
    """
    roll = random.Random(seed)
    found = []
    for _ in range(n):
        goal = f"{roll.choice(_COLOURS)} {roll.choice(_THINGS)}"
        system = {"role": "system", "content": f"You steer a robot. Your mission: go to the {goal}."}
        turns: list[tuple[str, str]] = []
        for _ in range(n_turns):
            side, n_steps = roll.choice(("left", "right", "ahead")), roll.randint(1, 9)
            thing = f"{roll.choice(_COLOURS)} {roll.choice(_THINGS)}"
            seen = f"a {goal} {n_steps} steps {side}, a {thing} {roll.randint(1, 9)} steps behind"
            if roll.random() < noise:
                side = roll.choice(("left", "right", "ahead"))
            turns.append((seen, "go forward" if side == "ahead" else f"turn {side}"))
        if is_appended:
            messages = [system]
            for seen, said in turns:
                messages += [{"role": "user", "content": seen}, {"role": "assistant", "content": said}]
            found.append(messages)
            continue
        for step, (seen, said) in enumerate(turns):
            past = "\n".join(f"saw {before}, did {done}" for before, done in turns[:step])
            user = {"role": "user", "content": f"{past}\nnow {seen}"}
            found.append([system, user, {"role": "assistant", "content": said}])
    return found


def steps_of(talk: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """A row for each answer."""
    return [talk[: i + 1] for i, message in enumerate(talk) if message["role"] == "assistant"]


def write_base(folder: Path) -> None:
    """A tokenizer that knows the words of these talks, and a model that half knows how to answer."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, special_tokens=["<|im_end|>"])
    texts = (message["content"] for talk in talks(50, 12, 0, is_appended=True) for message in talk)
    made.train_from_iterator(texts, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.train import train

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    begun = folder / "begun"
    transformers.LlamaForCausalLM(config).save_pretrained(begun)
    (folder / "base").symlink_to(folder)
    tokens = _tokens(folder, talks(64, 12, 9, is_appended=True, noise=0.5), "base")
    recipe = LocalRecipe(
        lora=None, num_train_epochs=6, per_device_train_batch_size=2, learning_rate=2e-3, max_length=4096
    )
    with contextlib.redirect_stdout(None):  # transformers prints every loss
        train(str(begun), tokens, folder, recipe, workspace=folder / "work")


def trl(
    folder: Path, rows: list[list[dict[str, str]]], epochs: int, *, is_by_step: bool = False
) -> tuple[Any, Clock]:
    """TRL's own trainer on a row for each talk, or for each step."""
    import datasets
    import torch
    import transformers
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    on_gpu = torch.cuda.is_available()
    if is_by_step:
        examples = [{"prompt": row[:-1], "completion": row[-1:]} for talk in rows for row in steps_of(talk)]
        how = {"completion_only_loss": True, "per_device_train_batch_size": BATCH}
    else:
        examples = [{"messages": talk} for talk in rows]
        how = {"assistant_only_loss": True, "per_device_train_batch_size": _talks_in_a_batch(rows)}
    trainer = SFTTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder / "base"),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "base"),
        train_dataset=datasets.Dataset.from_list(examples),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"
        ),
        args=SFTConfig(
            output_dir=str(folder / "trl"),
            max_length=4096,
            num_train_epochs=epochs,
            learning_rate=RATE,
            lr_scheduler_type="cosine",
            warmup_steps=0.03,
            use_cpu=not on_gpu,
            bf16=on_gpu,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=0,
            **how,
        ),
    )
    start = Clock.now()
    trainer.train()
    return trainer.model, start.since()


def trajkit(folder: Path, rows: list[list[dict[str, str]]], epochs: int) -> tuple[Any, Clock]:
    """A row for each talk; as many steps of the optimizer as the other has, so that both learn as often."""
    import peft
    import torch
    import transformers

    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.train import train

    recipe = LocalRecipe.model_validate(
        {
            "lora": {"r": RANK, "lora_alpha": 2 * RANK},
            "num_train_epochs": epochs,
            "per_device_train_batch_size": _talks_in_a_batch(rows),
            "learning_rate": RATE,
            "max_length": 4096,
            "num_threads": torch.get_num_threads(),
        }
    )
    tokens = _tokens(folder, rows, "train")
    start = Clock.now()
    train(str(folder / "base"), tokens, folder / "tuned", recipe, workspace=folder / "work")
    took = start.since()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
    return peft.PeftModel.from_pretrained(model, folder / "tuned"), took


def _talks_in_a_batch(rows: list[list[dict[str, str]]]) -> int:
    n_answers = sum(len(steps_of(talk)) for talk in rows) / len(rows)
    return max(1, round(BATCH / n_answers))


def _tokens(folder: Path, rows: list[list[dict[str, str]]], name: str) -> Path:
    from trajkit.formats.tokens.tokenizer import ChatTemplate
    from trajkit.training.local.tokens.tokenised import Limit, tokenise

    lines = folder / f"{name}.jsonl"
    with lines.open("w", encoding="utf-8") as file:
        for talk in rows:
            weights = [1.0 for message in talk if message["role"] == "assistant"]
            file.write(json.dumps({"messages": talk, "weights": weights}) + "\n")
    tokenise(lines, folder / f"{name}.arrow", ChatTemplate(str(folder / "base")), limit=Limit(4096, ""))
    return folder / f"{name}.arrow"


def measured(folder: Path, model: Any, rows: list[list[dict[str, str]]]) -> float:
    """Mean loss of the tokens of the answers."""
    import torch

    from trajkit.training.local.loss import weighted_loss
    from trajkit.training.local.tokens.batch import TokenRows, collate
    from trajkit.training.local.tokens.tokenised import open_tokens

    table = TokenRows(open_tokens(_tokens(folder, rows, "validation")).table)
    total = weight = 0.0
    with torch.no_grad():
        for number in range(len(table)):
            found = weighted_loss(model.eval(), collate([table[number]], padding=0))
            total, weight = total + found.total.item(), weight + found.weight.item()
    return total / weight


def child(program: str, folder: Path, arguments: argparse.Namespace) -> None:
    """One training in this process; prints what it came to."""
    import torch

    torch.set_num_threads(arguments.threads)
    is_appended = not arguments.history
    rows = talks(arguments.episodes, arguments.turns, 1, is_appended=is_appended)
    held_out = talks(24, arguments.turns, 2, is_appended=is_appended)
    n_answers = _n_answer_tokens(folder, rows)
    if program == TRAJKIT:
        model, took = trajkit(folder, rows, arguments.epochs)
    else:
        model, took = trl(folder, rows, arguments.epochs, is_by_step=program == TRL_STEPS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    loss = measured(folder, model, held_out)
    found = {**took._asdict(), "tokens": n_answers * arguments.epochs, "loss": loss, "peak": peak}
    print(json.dumps(found))


def _n_answer_tokens(folder: Path, rows: list[list[dict[str, str]]]) -> int:
    from trajkit.formats.tokens.tokenizer import ChatTemplate

    count = ChatTemplate(str(folder / "base")).count
    return sum(count(each["content"]) + 1 for row in rows for each in row if each["role"] == "assistant")


def run(program: str, base: Path, arguments: argparse.Namespace, *, history: bool) -> dict[str, float]:
    """One training in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "base").symlink_to(base)
        shared = ("episodes", "turns", "epochs", "threads")
        options = [f"--{name}={getattr(arguments, name)}" for name in shared]
        options += ["--history"] if history else []
        found: dict[str, float] = again(__file__, "--child", program, "--folder", folder, *options)
        return found


def compare(base: Path, arguments: argparse.Namespace, *, history: bool) -> tuple[float, float]:
    """Rounds of all; how trajkit's speed and loss relate to those of TRL's best setting."""
    rounds = 1 if history else arguments.rounds
    programs = (TRL, TRAJKIT) if history else (TRL, TRL_STEPS, TRAJKIT)  # with a history a talk is a step
    found: dict[str, list[dict[str, float]]] = {program: [] for program in programs}
    for _ in range(rounds):
        for program in programs:
            found[program].append(run(program, base, arguments, history=history))
    middle = {
        program: {name: statistics.median(each[name] for each in all_of) for name in all_of[0]}
        for program, all_of in found.items()
    }
    print("history in one message" if history else f"append-only, {arguments.turns} turns")
    for program, one in middle.items():
        print(
            f"  {program:9} {one['wall_s']:6.1f} s  {one['tokens'] / one['wall_s']:8,.0f} answer tokens/s"
            f"  {one['cpu_s']:6.1f} s of processors"
            f"  validation {one['loss']:.4f}  peak {one['peak'] / 1e6:,.0f} MB"
        )
    return middle[TRL]["wall_s"] / middle[TRAJKIT]["wall_s"], middle[TRAJKIT]["loss"] / middle[TRL]["loss"]


def main() -> int:
    """Compare; 1 when a limit is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--history", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.folder, arguments)
        return 0
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        write_base(base)
        speed, loss = compare(base, arguments, history=False)
        is_fast, is_good = speed >= MIN_SPEED_UP, loss <= MAX_LOSS_RATIO
        print(f"  speed    {speed:.2f} of TRL's  (at least {MIN_SPEED_UP:g}) {'' if is_fast else 'MISSED'}")
        print(f"  loss     {loss:.3f} of TRL's  (at most {MAX_LOSS_RATIO:g}) {'' if is_good else 'MISSED'}")
        speed, loss = compare(base, arguments, history=True)
        print(f"  speed    {speed:.2f} of TRL's, loss {loss:.3f} of TRL's  (no bound)")
    return 0 if is_fast and is_good else 1


if __name__ == "__main__":
    sys.exit(main())
