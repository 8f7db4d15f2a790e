"""A model of a real shape plays BabyAI, in a vLLM of your environment and in this process.

    python bench/through_vllm.py [--shape qwen3-0.6b] [--layers N] [--episodes 128] [--vllm-command COMMAND]

The model has random weights, and so has the LoRA of rank 16 that plays too, loaded by its name. Each plays
`--episodes` episodes of 8 steps of the task goto: `vllm` is `rollout --policy vllm`, which starts a vLLM, and
`local` is `rollout --policy local`. Answers of 16 tokens are drawn at temperature 1 without a grammar.

`steps/s` are environment steps from the first episode's begin to the last one's end, without the start of
vLLM. `in flight` are requests on average, and `prefix hits` the share of the prompts' tokens that vLLM's
prefix cache had, by vLLM's own metrics. `gap` is how much the log-probability of a drawn token differs from a
forward pass of transformers over the same token ids, in bf16 on a GPU and in 32 bits elsewhere, in nats: mean
and largest of 64 steps. Exit 1 where a step has no token ids or no log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.gpu import apart  # noqa: E402 - from this folder, wherever it is run

N_STEPS, N_ANSWER, N_COMPARED, RANK = 8, 16, 64, 16
LIMIT_S = 1200.0
"""Seconds for writing the models, or for a comparison."""


def write_models(base: str, adapter: str, asked: argparse.Namespace) -> None:
    """Write a random model, and a LoRA whose weights are random and change what the model says."""
    import peft
    import torch
    import transformers

    from trajkit import random_model

    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{asked.shape}, {asked.layers or 'all'} layers, {asked.episodes} episodes of {N_STEPS} steps")
    print(f"{machine}, {platform.machine()}, torch {torch.__version__}\n", flush=True)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        random_model(asked.shape, output=base, layers=asked.layers or None)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    lora = peft.LoraConfig(
        task_type="CAUSAL_LM", r=RANK, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, lora).save_pretrained(adapter)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(adapter)


def played(folder: Path, policy: str, model: str, asked: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Play: the store, and what a vLLM said of its use."""
    store = folder / f"{policy}-{Path(model).name}"
    command = [sys.executable, "-m", "trajkit", "rollout", "babyai", "--task", "goto", "--policy", policy]
    command += ["--model", model, "--episodes", str(asked.episodes), "--max-steps", str(N_STEPS)]
    command += ["--policy-set", f"max_new_tokens={N_ANSWER}", "--policy-set", "json_mode=off"]
    command += ["--json", "--new-run", "-o", str(store)]
    if policy == "vllm":
        command += ["--vllm-command", asked.vllm_command]
    given = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=folder, env=given, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with exit code {done.returncode}")
    last = json.loads(done.stdout.splitlines()[-1])
    return store, last.get("vllm", {})


def rows_of(store: Path) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Speed of a store's episodes, and the tokens of some steps."""
    import duckdb

    is_whole = "len(prompt_token_ids) > 0 AND len(completion_token_ids) = len(logprobs)"
    n_steps, n_whole = _first(f"SELECT count(*), count(*) FILTER ({is_whole}) FROM '{store}/steps/*.parquet'")
    (seconds,) = _first(f"SELECT epoch(max(ended_at) - min(started_at)) FROM '{store}/episodes/*.parquet'")
    rows = duckdb.sql(
        f"SELECT prompt_token_ids, completion_token_ids, logprobs FROM '{store}/steps/*.parquet'"
        f" WHERE {is_whole} ORDER BY episode_id, step_index LIMIT {N_COMPARED}"
    ).fetchall()
    return {"n_steps": n_steps, "n_whole": n_whole, "steps_per_s": n_steps / seconds}, rows


def _first(query: str) -> Any:
    import duckdb

    return duckdb.sql(query).fetchall()[0]


def gap(base: str, adapter: str | None, rows: list[tuple[Any, ...]]) -> tuple[float, float]:
    """Mean and largest difference of the drawn tokens' log-probabilities from a forward pass."""
    if not rows:
        raise ValueError("no step has token ids and log-probabilities")
    import peft
    import torch
    import transformers

    on_gpu = torch.cuda.is_available()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.bfloat16 if on_gpu else torch.float32
    )
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, adapter)
    model = model.to("cuda" if on_gpu else "cpu").eval()
    found = []
    with torch.inference_mode():
        for prompt, answer, logprobs in rows:
            ids = torch.tensor([[*prompt, *answer]], device=model.device)
            logits = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
            ours = logits.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
            found.append((ours - torch.tensor(logprobs)).abs())
    every = torch.cat(found)
    return float(every.mean()), float(every.max())


def main() -> int:
    """Play with both, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=0, help="0: all that the shape has")
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--vllm-command", default="vllm serve", help="as of `trajkit rollout`")
    asked = parser.parse_args()
    words = shlex.split(asked.vllm_command)
    program = shutil.which(words[0]) if words else None
    if program is None:
        print(f"there is no program {asked.vllm_command!r}, which starts vLLM: nothing is measured")
        return 0
    asked.vllm_command = shlex.join([str(Path(program).absolute()), *words[1:]])  # it runs in another folder
    # what uses the GPU has a process of its own, so that vLLM finds its memory free
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    is_well = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, adapter = str(folder / "base"), str(folder / "adapter")
        if failed := apart(write_models, base, adapter, asked, limit_s=LIMIT_S):
            raise SystemExit(failed)
        print("| policy | model | steps/s | in flight | prefix hits | gap, mean | gap, largest |")
        print(f"|{'---|' * 7}", flush=True)
        for policy, model in (("vllm", base), ("vllm", adapter), ("local", base), ("local", adapter)):
            store, use = played(folder, policy, model, asked)
            facts, rows = rows_of(store)
            found = apart(gap, base, adapter if model == adapter else None, rows, limit_s=LIMIT_S)
            is_well &= facts["n_steps"] == facts["n_whole"] and not isinstance(found, str)
            gaps = f"{found} |" if isinstance(found, str) else f"{found[0]:.4f} | {found[1]:.3f}"
            flight, hits = use.get("mean_in_flight"), use.get("prefix_cache_hit_rate")
            used = f"{'' if flight is None else f'{flight:.0f}'} | {'' if hits is None else f'{hits:.0%}'}"
            print(
                f"| {policy} | {Path(model).name} | {facts['steps_per_s']:.1f} | {used} | {gaps} |",
                flush=True,
            )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
