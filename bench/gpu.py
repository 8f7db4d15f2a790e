"""Training of a model of a real shape on a GPU: trajkit against TRL's SFTTrainer and unsloth.

    python bench/gpu.py [--shape qwen3-0.6b] [--layers N] [--length 4096] [--lines 4] [--tokens 400000]

Most train a LoRA of rank 16 in bf16, all for one epoch, each setting in a process of its own. A batch has
`--lines` lines of `--length` tokens, or as many rows as fill them. There are three kinds of rows:

conversations   rows of 200 to 2,000 tokens, of which one in seven is learned
episodes        the steps of agents that write their history into one message: the rows of an episode have
                instructions and history in common, then 20 tokens of their own and an answer of 20 tokens
pairs           prompts of 600 tokens, each with two completions of 40 tokens, for `dpo local` and `kto local`

`tokens/s` are tokens of the rows by the median time of a step, the first third (at most five) left out.
`utilisation` is the share of the GPU's dense bf16 rate (`--tflops`) that these tokens need: 4 operations for
each weight of the layers (forward, and backward to the inputs: the base is frozen) and 12 for each pair of
attention and dimension (6 where all weights are trained); what is recomputed does not count, nor what the
reference model of preferences computes (Chowdhery et al. 2022, "PaLM", appendix B). Beginnings that are
computed once count in each row, so the share of `episodes` may be above 100 %. `loss` is the mean of the
epoch. `planned GB` is what the plan of `sft local` says for the model and a batch. How long a setting took in
all, compilation included, is told on stderr.

unsloth needs other versions of transformers and TRL than trajkit: `trajkit random-model qwen3-0.6b -o FOLDER`
here, then `python bench/gpu.py --model FOLDER --settings "unsloth, packed"` in an environment of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

RANK, RATE, SKIPPED = 16, 1e-4, 5
Rows = list[tuple[Any, Any]]


class Setting(NamedTuple):
    """How a program trains."""

    program: str
    rows: str
    options: dict[str, Any]


SETTINGS = {
    "trajkit": Setting("trajkit", "conversations", {"group_by_length": True}),
    "trajkit, packed": Setting("trajkit", "conversations", {"packing": True}),
    "trajkit, packed, liger": Setting(
        "trajkit", "conversations", {"packing": True, "use_liger_kernel": True}
    ),
    "trajkit, packed, compiled": Setting(
        "trajkit", "conversations", {"packing": True, "torch_compile": True}
    ),
    "trl": Setting("trl", "conversations", {}),
    "trl, liger": Setting("trl", "conversations", {"use_liger_kernel": True}),
    "trl, packed, liger": Setting("trl", "conversations", {"packing": True, "use_liger_kernel": True}),
    "trl, packed, liger, flash": Setting(
        "trl",
        "conversations",
        {"packing": True, "use_liger_kernel": True, "attention": "flash_attention_2"},
    ),
    "trl, packed, compiled": Setting("trl", "conversations", {"packing": True, "torch_compile": True}),
    "trajkit, episodes": Setting("trajkit", "episodes", {"packing": True}),
    "trajkit, episodes, liger": Setting("trajkit", "episodes", {"packing": True, "use_liger_kernel": True}),
    "trajkit, episodes, compiled": Setting("trajkit", "episodes", {"packing": True, "torch_compile": True}),
    "trl, episodes, liger": Setting("trl", "episodes", {"packing": True, "use_liger_kernel": True}),
    "trl, episodes, liger, flash": Setting(
        "trl", "episodes", {"packing": True, "use_liger_kernel": True, "attention": "flash_attention_2"}
    ),
    "unsloth, packed": Setting("unsloth", "conversations", {"packing": True}),
    "unsloth, episodes": Setting("unsloth", "episodes", {"packing": True}),
    "trajkit, 4 bits": Setting(
        "trajkit", "conversations", {"packing": True, "use_liger_kernel": True, "load_in": "4bit"}
    ),
    "trajkit, all weights": Setting(
        "trajkit", "conversations", {"packing": True, "use_liger_kernel": True, "lora": None}
    ),
    "trajkit, dpo": Setting("dpo", "pairs", {}),
    "trajkit, kto": Setting("kto", "pairs", {}),
}


def conversations(n_tokens: int, n_vocabulary: int) -> Rows:
    """Rows that have nothing in common."""
    random = np.random.default_rng(0)
    found: Rows = []
    while n_tokens > 0:
        length = int(random.integers(200, 2000))
        learned = np.repeat(random.random(-(-length // 20)) < 1 / 7, 20)[:length]
        learned[-20:] = True
        found.append((random.integers(n_vocabulary, size=length), learned))
        n_tokens -= length
    return found


def episodes(n_tokens: int, n_vocabulary: int, n_steps: int = 16) -> Rows:
    """A row for each step of an episode; the history grows by 60 tokens a step."""
    random = np.random.default_rng(0)
    found: Rows = []
    system = random.integers(n_vocabulary, size=300)
    while n_tokens > 0:
        whole = np.concatenate([system, random.integers(n_vocabulary, size=100 + 60 * n_steps)])
        for step in range(n_steps):
            row = np.concatenate([whole[: 400 + 60 * step], random.integers(n_vocabulary, size=40)])
            found.append((row, np.arange(len(row)) >= len(row) - 20))
            n_tokens -= len(row)
    return found


def pairs(n_tokens: int, n_vocabulary: int) -> Rows:
    """Two rows for each prompt: with the completion that is chosen, and with the one that is not."""
    random = np.random.default_rng(0)
    found: Rows = []
    learned = np.arange(640) >= 600
    while n_tokens > 0:
        prompt = random.integers(n_vocabulary, size=600)
        for _ in ("chosen", "rejected"):
            found.append((np.concatenate([prompt, random.integers(n_vocabulary, size=40)]), learned))
        n_tokens -= 2 * 640
    return found


class Done(NamedTuple):
    """What a training came to."""

    seconds: float
    n_steps: int
    loss: float
    planned_bytes: int | None = None


def trajkit(folder: Path, rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> Done:
    """The training that `trajkit sft local` starts."""
    from trajkit.training.local.base_model import batch_memory, least_memory, measured
    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.tokens.batch import SCHEMA
    from trajkit.training.local.train import train

    table = pa.table(
        {"input_ids": [row for row, _ in rows], "weights": [learned * 1.0 for _, learned in rows]},
        schema=SCHEMA,
    )
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
    recipe = LocalRecipe.model_validate(
        _recipe(asked) | {"per_device_train_batch_size": _n_rows(rows, options, asked), **options}
    )
    sizes = measured(asked.folder, recipe)  # before liger changes what models of this process compute
    at = [time.perf_counter()]
    done = train(
        asked.folder,
        folder / "rows.arrow",
        folder / "tuned",
        recipe,
        workspace=folder / "work",
        on_step=lambda step: at.append(time.perf_counter()),
    )
    n_learned = sum(int(learned.sum()) for _, learned in rows) // done.n_steps
    batch = batch_memory(sizes, asked.lines * asked.length, n_learned)
    planned = None if batch is None else least_memory(recipe, sizes) + batch
    return Done(_middle(at), done.n_steps, done.train_loss, planned)


def _recipe(asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "num_train_epochs": 1,
        "learning_rate": RATE,
        "max_length": asked.length,
        "gradient_checkpointing": asked.checkpoints,
    }


def dpo(folder: Path, rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> Done:
    """The training that `trajkit dpo local` starts."""
    split = [(row[~learned], row[learned]) for row, learned in rows]
    columns = {
        "prompt_ids": [prompt for prompt, _ in split[::2]],
        "chosen_ids": [completion for _, completion in split[::2]],
        "rejected_ids": [completion for _, completion in split[1::2]],
    }
    return _preferences("dpo", columns, folder, max(1, _n_rows(rows, options, asked) // 2), options, asked)


def kto(folder: Path, rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> Done:
    """The training that `trajkit kto local` starts."""
    columns = {
        "prompt_ids": [row[~learned] for row, learned in rows],
        "completion_ids": [row[learned] for row, learned in rows],
        "label": [number % 2 == 0 for number in range(len(rows))],
    }
    return _preferences("kto", columns, folder, max(2, _n_rows(rows, options, asked)), options, asked)


def _preferences(
    method: str,
    columns: dict[str, list[Any]],
    folder: Path,
    n_rows: int,
    options: dict[str, Any],
    asked: argparse.Namespace,
) -> Done:
    from trajkit.training.local.preferences.recipe import RECIPES
    from trajkit.training.local.preferences.tokens import SCHEMAS
    from trajkit.training.local.preferences.train import train_preference

    schema = SCHEMAS[method]
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    fields = _recipe(asked) | {"per_device_train_batch_size": n_rows, **options}
    at = [time.perf_counter()]
    done = train_preference(
        asked.folder,
        folder / "rows.arrow",
        folder / "tuned",
        RECIPES[method].model_validate(fields),
        method=method,
        tokenizer=asked.folder,
        workspace=folder / "work",
        on_step=lambda step: at.append(time.perf_counter()),
    )
    return Done(_middle(at), done.n_steps, done.train_loss)


def trl(folder: Path, rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> Done:
    """TRL's trainer; packed rows with flash-attn where a setting says so, else with FlexAttention."""
    import torch
    import transformers
    from peft import LoraConfig

    options = dict(options)
    attention = options.pop("attention", "flex_attention" if options.get("packing") else "sdpa")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        asked.folder, dtype=torch.bfloat16, attn_implementation=attention
    )
    lora = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear")
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.folder)
    return _sft(model, tokenizer, folder, rows, options, asked, peft_config=lora)


def unsloth(folder: Path, rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> Done:
    """The same trainer as unsloth rewrites it, with a model of unsloth's and its attention."""
    from unsloth import FastLanguageModel  # before transformers and trl, which it changes

    kept = "unsloth" if asked.checkpoints else False
    model, tokenizer = FastLanguageModel.from_pretrained(
        asked.folder,
        max_seq_length=asked.length,
        dtype=None,
        load_in_4bit=False,
        use_gradient_checkpointing=kept,
        use_exact_model_name=True,
        local_files_only=True,
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=RANK,
        lora_alpha=2 * RANK,
        lora_dropout=0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        use_gradient_checkpointing=kept,
        max_seq_length=asked.length,
    )
    # its own defaults are 8 bits, a weight decay and two batches a step
    same = {"optim": "adamw_torch_fused", "weight_decay": 0.0, "gradient_accumulation_steps": 1}
    return _sft(model, tokenizer, folder, rows, {"loss_type": "nll", **same, **options}, asked)


def _sft(
    model: Any,
    tokenizer: Any,
    folder: Path,
    rows: Rows,
    options: dict[str, Any],
    asked: argparse.Namespace,
    **more: Any,
) -> Done:
    import datasets
    import torch
    import transformers
    from trl import SFTConfig, SFTTrainer

    at = [time.perf_counter()]

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if "loss" in logs:
                at.append(time.perf_counter())

    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_dict(
            {
                "input_ids": [row.tolist() for row, _ in rows],
                "assistant_masks": [learned.astype(int).tolist() for _, learned in rows],
            }
        ),
        callbacks=[Clock()],
        args=SFTConfig(
            output_dir=str(folder / "trl"),
            max_length=asked.length,
            per_device_train_batch_size=_n_rows(rows, options, asked),
            num_train_epochs=1,
            learning_rate=RATE,
            lr_scheduler_type="cosine",
            warmup_steps=0.03,
            bf16=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=asked.checkpoints,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            seed=0,
            **options,
        ),
        **more,
    )
    trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return Done(_middle(at), len(losses), statistics.fmean(losses))


def _middle(at: list[float]) -> float:
    """Median time of a step, without the first ones, in which kernels are compiled."""
    times = np.diff(at)
    return float(np.median(times[min(SKIPPED, len(times) // 3) :]))


def _n_rows(rows: Rows, options: dict[str, Any], asked: argparse.Namespace) -> int:
    """Lines of a batch, or as many rows as they hold."""
    if options.get("packing"):
        return int(asked.lines)
    return max(1, round(asked.lines * asked.length / statistics.fmean(len(row) for row, _ in rows)))


def measure(name: str, asked: argparse.Namespace) -> dict[str, float]:
    """Train with a setting in this process."""
    setting = SETTINGS[name]
    if setting.program == "unsloth":
        importlib.import_module("unsloth")  # before transformers
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(asked.folder)
    make = {"conversations": conversations, "episodes": episodes, "pairs": pairs}[setting.rows]
    rows = make(asked.tokens, config.vocab_size)
    # transformers prints each loss
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        run = {"trajkit": trajkit, "trl": trl, "unsloth": unsloth, "dpo": dpo, "kto": kto}[setting.program]
        done = run(Path(folder), rows, setting.options, asked)
    n_tokens, n_learned = (sum(int(each[i].sum() if i else len(each[0])) for each in rows) for i in (0, 1))
    tokens_per_s = n_tokens / (done.seconds * done.n_steps)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    n_head = model.get_output_embeddings().weight.numel()
    n_layers = sum(each.numel() for each in model.model.layers.parameters())
    width = config.num_attention_heads * getattr(config, "head_dim", 0) * config.num_hidden_layers
    n_attended = sum(len(row) ** 2 / 2 for row, _ in rows)
    per_weight = 6 if setting.options.get("lora", asked) is None else 4
    operations = per_weight * (n_tokens * n_layers + n_learned * n_head) + 12 * n_attended * width
    utilisation = operations / n_tokens * tokens_per_s / (asked.tflops * 1e12)
    on_gpu = torch.cuda.is_available()
    return {
        "seconds": done.seconds,
        "n_steps": done.n_steps,
        "tokens_per_s": tokens_per_s,
        "learned_per_s": tokens_per_s * n_learned / n_tokens,
        "gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0.0,
        "planned_gb": (done.planned_bytes or 0) / 1e9,
        "utilisation": utilisation,
        "loss": done.loss,
    }


def tell(model: str, asked: argparse.Namespace) -> None:
    """Print what is measured, and where."""
    import torch

    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"\n{model}, batches of {asked.lines} x {asked.length:,} tokens")
    print(f"{machine}, {platform.machine()}, torch {torch.__version__}\n", flush=True)


def write_model(shape: str, asked: argparse.Namespace) -> None:
    """Write the random model; on a GPU its weights are drawn faster."""
    import torch

    from trajkit import random_model

    tell(f"{shape}, {asked.layers or 'all'} layers", asked)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        random_model(shape, output=asked.folder, layers=asked.layers or None)


def apart(run: Callable[..., Any], *arguments: Any, limit_s: float) -> Any:
    """Return what a function returns in a process of its own, or why it failed as text.

    The process is forked, so that imports are done once, unless one of them used the GPU.
    """
    import torch

    context = multiprocessing.get_context("spawn" if torch.cuda.is_initialized() else "fork")
    ours, theirs = context.Pipe(duplex=False)
    began = time.perf_counter()
    process = context.Process(target=_send, args=(theirs, run, *arguments))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(limit_s) else f"failed: not done after {limit_s:.0f} s"
    except EOFError:
        found = "failed: its process ended"
    process.join(1)
    process.kill()
    process.join()
    print(f"{arguments[0]}: {time.perf_counter() - began:.0f} s in all", file=sys.stderr, flush=True)
    return found


def _send(goal: Any, run: Callable[..., Any], *arguments: Any) -> None:
    try:
        goal.send(run(*arguments))
    except BaseException as error:  # noqa: BLE001 - a failed setting is a line of the table
        traceback.print_exc()
        goal.send(f"failed: {type(error).__name__}: {error}".splitlines()[0][:300])


def main() -> int:
    """Measure each setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="qwen3-0.6b", help="several are separated by ','")
    parser.add_argument("--layers", type=int, default=0, help="0: all that the shape has")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--lines", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--checkpoints", action="store_true", help="gradient checkpointing")
    parser.add_argument("--tflops", type=float, default=989.0, help="of the GPU; an H100's by its data sheet")
    parser.add_argument("--model", help="folder of a model that is there")
    usual = ";".join(name for name, each in SETTINGS.items() if each.program != "unsloth")
    parser.add_argument("--settings", default=usual, help="names separated by ';'")
    parser.add_argument("--limit", type=float, default=1200, help="seconds that a setting may take")
    asked = parser.parse_args()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for a GPU leaves this process fit to fork
    import torch

    if not torch.cuda.is_available() and not asked.layers and not asked.model:
        print("no GPU: nothing is measured (--layers 1 --length 2000 --tokens 4000 tries it on a CPU)")
        return 0
    names = asked.settings.split(";")
    if unknown := [name for name in names if name not in SETTINGS]:
        parser.error(f"no setting {unknown}; there are {list(SETTINGS)}")
    if len({SETTINGS[name].program == "unsloth" for name in names}) > 1:
        parser.error("unsloth changes TRL: measure it in a call of its own")
    if asked.model and (asked.layers or asked.shape != parser.get_default("shape")):
        parser.error("--model has its own shape and layers")
    if any(SETTINGS[name].program != "unsloth" for name in names):
        import datasets  # noqa: F401
        import peft  # noqa: F401
        from transformers import Trainer  # noqa: F401
        from trl import DPOTrainer, KTOTrainer, SFTTrainer  # noqa: F401

        import trajkit.training.local.preferences.train
        import trajkit.training.local.train  # noqa: F401
    if asked.model:
        asked.folder = str(Path(asked.model).resolve())
        apart(tell, asked.folder, asked, limit_s=asked.limit)
        return 0 if table(names, asked) else 1
    is_well = True
    for shape in asked.shape.split(","):
        with tempfile.TemporaryDirectory() as folder:
            asked.folder = f"{folder}/model"
            failed = apart(write_model, shape, asked, limit_s=asked.limit)
            if failed:
                print(f"{shape} {failed}", flush=True)
            is_well &= not failed and table(names, asked)
    return 0 if is_well else 1


def table(names: list[str], asked: argparse.Namespace) -> bool:
    """Measure settings with a model, and print a line of each; whether none failed."""
    is_well = True
    rates = "tokens/s | learned tokens/s | planned GB | GB | utilisation"
    print(f"| setting | {rates} | s a step | steps | loss |\n|{'---|' * 9}", flush=True)
    for name in names:
        found = apart(measure, name, asked, limit_s=asked.limit)
        if isinstance(found, str):
            is_well = False
            print(f"| {name} | {found} |", flush=True)
            continue
        planned = f"{found['planned_gb']:.1f}" if found["planned_gb"] else ""
        rates = (
            f"{found['tokens_per_s']:,.0f} | {found['learned_per_s']:,.0f} | {planned} | {found['gb']:.1f}"
        )
        times = f"{found['utilisation']:.0%} | {found['seconds']:.3f} | {found['n_steps']}"
        print(f"| {name} | {rates} | {times} | {found['loss']:.3f} |", flush=True)
    return is_well


if __name__ == "__main__":
    sys.exit(main())
