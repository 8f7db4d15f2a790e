"""Train the tiny base model that comes with trajkit as `sample:tiny-base`, from nothing.

needs    trajkit[babyai,local,render]; no key, no network, no GPU
minutes  1 on one thread
cost     none
leaves   data/tiny-base: a Llama of a quarter of a million weights, its tokenizer and chat template,
         the worlds that it learned, a README

It imitates minigrid's planner in the prompts of `recipes/babyai` and `recipes/babyai_tools`, and knows so few
worlds that something is left to learn. Half of the actions that are carried out are random, so that it sees
more states than those on the planner's path; in every state it learns the planner's action. The same versions
give the same bytes.

Run as `python recipes/tiny_base.py`; a folder as its argument replaces data/tiny-base.
"""

from __future__ import annotations

import json
import platform
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import minijinja
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    set_seed,
)
from transformers.utils import logging

from trajkit._core.files import sha256_file
from trajkit.environments.babyai import ACTIONS, TASKS, BabyAI
from trajkit.rollouts.gateway_policy import history_text
from trajkit.rollouts.policies import Past
from trajkit.stack.rule_player import play

ROOT = Path(__file__).resolve().parent.parent
GOAL = ROOT / "data" / "tiny-base"
PROMPTS = ROOT / "recipes" / "babyai" / "act"
TOOL_PROMPTS = ROOT / "recipes" / "babyai_tools" / "move"

SEED = 0
FIRST_WORLD = 3_000_000  # far from usual seeds
WORLDS_PER_TASK = 22
MOST_STEPS = 24  # of an episode
HISTORY = 8
DETOURS = 0.5
"""Share of executed actions that are random; these are not learned."""
TOOLS = "tools"  # the variant that calls a tool
VARIANTS = {
    "baseline": 3,
    "reasoning": 2,
    "history": 5,
    "history_and_reasoning": 2,
    "corrected": 1,
    TOOLS: 2,
}
THINKING = ("reasoning", "history_and_reasoning", "corrected")

HIDDEN, LAYERS, HEADS, FEED_FORWARD = 64, 4, 4, 192
CONTEXT = 4096
EPOCHS = 6
TOKENS_PER_BATCH = 4096
LEARNING_RATE = 6e-3
EPISODES_MEASURED = 10
PROMPT_WEIGHT = 0.1

README = """\
# tiny-base

A language model of {n_weights:,} weights, trained from nothing in a minute on one thread: a Llama of
{layers} layers, a tokenizer of {n_tokens:,} tokens (bytes, words, and as one token each what the prompts say
in any case, so that prompts are short), and a chat template that marks what the assistant says. It is for
tests, examples and recipes, which tune it on any machine; by itself it is good for nothing.
`sample:tiny-base` names it wherever trajkit asks for a model.

It learned {n_rows:,} answers of {n_episodes} episodes of BabyAI, in the prompts of `recipes/babyai` and
`recipes/babyai_tools`. Every answer is the action of minigrid's planner; {detours:.0%} of the actions that
were carried out are random, so that it saw more states than those on the planner's way. It is weak because
it knows few worlds: a tuned model has something to gain. Its worlds have the seeds from {first:,} to
{last:,}. The loss of the answers in episodes that it did not learn is {loss:.3f} nats a token; with random
weights it was {before:.3f}.

Made by `python recipes/tiny_base.py`, seed {seed}, with Python {python} and
{versions}.
The same versions on the same kind of processor give the same bytes.

Licence: Apache-2.0, as trajkit. Every text that it learned is trajkit's own. BabyAI and MiniGrid are
Apache-2.0 software of the Farama Foundation; no code of theirs is here.

sha256:

{checksums}
"""

START, STOP, PADDING = "<|im_start|>", "<|im_end|>", "<|pad|>"
TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" -%}
{%- generation -%}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{{- message.content -}}
{%- for call in message.tool_calls or [] %}<call>{{ call.function | tojson }}</call>{% endfor -%}
<|im_end|>
{%- endgeneration %}
{% else -%}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""


TOOL = {
    "type": "function",
    "function": {
        "name": "move",
        "description": "Carry out one action.",
        "parameters": json.loads((TOOL_PROMPTS / "move.json").read_text("utf-8")),
        "strict": True,
    },
}


class Row(NamedTuple):
    """What the model reads and what it answers."""

    prompt: tuple[dict[str, str], ...]
    answer: str
    """Its text; with a tool, the action that it calls it with."""
    tools: tuple[dict[str, Any], ...] = ()

    def messages(self) -> list[dict[str, Any]]:
        """The prompt and the answer."""
        said: dict[str, Any] = {"role": "assistant", "content": self.answer}
        if self.tools:
            call = {"name": "move", "arguments": {"action": self.answer}}
            said |= {"content": "", "tool_calls": [{"type": "function", "function": call}]}
        return [*self.prompt, said]


def played() -> list[list[Row]]:
    """The planner's answers, episode by episode in any order, each in the prompts of one variant."""
    chance = random.Random(SEED)
    made = []
    for task in TASKS:
        for world in range(WORLDS_PER_TASK):
            variant = chance.choices(list(VARIANTS), list(VARIANTS.values()))[0]
            made.append(list(episode(task, FIRST_WORLD + world, variant, chance)))
    chance.shuffle(made)
    return made


def episode(task: str, seed: int, variant: str, chance: random.Random) -> Iterator[Row]:
    """The steps of one episode."""
    environment, past = BabyAI(task), []
    start = environment.reset(seed)
    observation = start.observation
    for _ in range(min(environment.max_steps, MOST_STEPS)):
        asked = written(
            variant,
            {
                "mission": start.mission,
                "observation": observation,
                "history": history_text(past, HISTORY),
            },
        )
        action = environment.expert_action()
        if variant == TOOLS:
            yield Row(tuple(asked), action, (TOOL,))
        else:
            thinking = ""
            if variant in THINKING:  # where things are, as the rule player of `trajkit up` says it
                where = play(start.mission, observation).thinking.rpartition(". I ")[0]
                thinking = f"{where}. I {action}."
            yield Row(tuple(asked), json.dumps({"thinking": thinking, "action": action}))
        result = environment.step(chance.choice(ACTIONS) if chance.random() < DETOURS else action)
        past.append(Past(observation, result.action_executed, result.action_valid))
        observation = result.observation
        if result.terminated or result.truncated:
            return


def written(variant: str, values: dict[str, str]) -> list[dict[str, str]]:
    """The messages that the gateway sends for a variant of `recipes/babyai` or `recipes/babyai_tools`."""
    is_corrected = variant == "corrected"
    files = {
        "system": PROMPTS / ("system_corrected" if is_corrected else "system"),
        "user": PROMPTS / ("user_history_and_reasoning" if is_corrected else f"user_{variant}"),
    }
    if variant == TOOLS:
        files = {role: TOOL_PROMPTS / role for role in files}
    engine = minijinja.Environment()
    return [
        {
            "role": role,
            "content": engine.render_str(file.with_suffix(".minijinja").read_text("utf-8"), **values),
        }
        for role, file in files.items()
    ]


COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
STEPS = tuple(
    f"{n} step{'' if n == 1 else 's'} {way}" for n in range(1, 8) for way in ("forward", "left", "right")
)
PHRASES = (
    *("system\n", "user\n", "assistant\n", "tools\n", "tool\n"),
    *("You carry ", "Observation: ", "\nObservation: "),
    *('{"thinking": "', '", "action": "', '{"thinking": "", "action": "', *ACTIONS, '"}'),
    *('<call>{"name": "move", "arguments": {"action": "', '"}}</call>'),
    *(f"\nAction: {action}{end}" for action in ACTIONS for end in ("\n\n", "")),
    *(f"{before}{steps}" for steps in STEPS for before in ("a wall ", " ")),
    *(f" and {steps}" for steps in STEPS if steps.endswith("forward")),
    *(f"{before} {color}" for color in COLORS for before in ("a", "the", " the")),
    *(f"a {state} {color} door" for state in ("open", "closed", "locked") for color in COLORS),
    *("go to ", "pick up ", "put ", " next to ", "open "),
    *(*(f" I {action}." for action in ACTIONS), " I walk on to see more.", "I do not see"),
    *(" to my left and", " to my right and", " ahead.", " behind.", " is in front of me."),
)
"""Frequent phrases of prompts and answers."""
WORD = re.compile(r"[^\S\n]?[A-Za-z]+|[0-9]|\n+|[^\sA-Za-z0-9]+")


def fixed_parts() -> list[str]:
    """The fixed parts of the prompts: whole, and line by line."""
    found = [json.dumps([TOOL])]
    for path in (*sorted(PROMPTS.glob("*.minijinja")), *sorted(TOOL_PROMPTS.glob("*.minijinja"))):
        for part in re.split(r"{{.*?}}|{%.*?%}", path.read_text("utf-8").removesuffix("\n")):
            found += [each for each in (part, *part.splitlines(keepends=True)) if each.strip()]
    return found


def make_tokenizer(rows: Sequence[Row]) -> PreTrainedTokenizerFast:
    """A tokenizer of fixed prompt parts, phrases, words and bytes that uses the fewest pieces."""
    said = [*fixed_parts(), *(text for row in rows for text in texts(row))]
    counted = Counter(word for text in said for word in WORD.findall(text))
    words = sorted(word for word, n in counted.items() if n > 1)
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [as_bytes.pre_tokenize_str(piece)[0][0] for piece in (*fixed_parts(), *PHRASES, *words)]
    scores = dict.fromkeys((PADDING, START, STOP), -9.0)  # never found in a text: they are special
    scores |= dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()), -3.0)
    scores |= dict.fromkeys(pieces, -1.0)
    made = Tokenizer(models.Unigram(list(scores.items()), unk_id=0))
    made.pre_tokenizer = as_bytes
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=STOP,
        pad_token=PADDING,
        additional_special_tokens=[START],
        model_max_length=CONTEXT,
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def texts(row: Row) -> list[str]:
    """The whole text of a row, without the ends of messages."""
    return [*(message["content"] for message in row.prompt), row.answer]


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama with random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


class Tokens(NamedTuple):
    """A row in tokens."""

    ids: list[int]
    weights: list[float]
    """The loss weight of each."""


def tokenised(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast) -> list[Tokens]:
    """The rows as the chat template writes them: answers are learned whole, prompts a little."""
    made = []
    for row in rows:
        written = tokenizer.apply_chat_template(
            row.messages(),
            tools=list(row.tools) or None,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        made.append(
            Tokens(
                written["input_ids"],
                [1.0 if is_said else PROMPT_WEIGHT for is_said in written["assistant_masks"]],
            )
        )
    return made


def batches(rows: Sequence[Tokens], chance: random.Random) -> list[list[Tokens]]:
    """Rows of similar length together, up to this many tokens; the batches in random order."""
    order = sorted(rows, key=lambda row: (len(row.ids), chance.random()))
    made: list[list[Tokens]] = [[]]
    for row in order:
        if (len(made[-1]) + 1) * len(row.ids) > TOKENS_PER_BATCH:
            made.append([])
        made[-1].append(row)
    chance.shuffle(made)
    return made


def loss_of(model: LlamaForCausalLM, batch: Sequence[Tokens]) -> torch.Tensor:
    """The weighted mean of the tokens' cross-entropy."""
    longest = max(len(row.ids) for row in batch)
    padding = model.config.pad_token_id
    ids = torch.tensor([row.ids + [padding] * (longest - len(row.ids)) for row in batch])
    weights = torch.tensor([row.weights + [0.0] * (longest - len(row.ids)) for row in batch])
    mask = torch.tensor([[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in batch])
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (losses * weights[:, 1:]).sum() / weights[:, 1:].sum()


def train(model: LlamaForCausalLM, rows: Sequence[Tokens], *, epochs: int) -> None:
    """Adam over all weights, the learning rate on a cosine."""
    chance = random.Random(SEED)
    plan = [batch for _ in range(epochs) for batch in batches(rows, chance)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=len(plan), pct_start=0.1
    )
    model.train()
    for number, batch in enumerate(plan, start=1):
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if number % 50 == 0 or number == len(plan):
            print(f"step {number} of {len(plan)}  loss {loss.item():.3f}", file=sys.stderr)


@torch.no_grad()
def measure(model: LlamaForCausalLM, rows: Sequence[Tokens]) -> float:
    """The loss of the answers alone."""
    model.eval()
    total, n_learned = 0.0, 0
    for batch in batches(rows, random.Random(SEED)):
        only = [Tokens(row.ids, [float(weight == 1.0) for weight in row.weights]) for row in batch]
        n = sum(int(sum(row.weights)) for row in only)
        total, n_learned = total + loss_of(model, only).item() * n, n_learned + n
    return total / n_learned


def readme(folder: Path, **facts: Any) -> str:
    """The README of the folder."""
    packages = ("trajkit", "torch", "transformers", "tokenizers", "minigrid", "minijinja")
    return README.format(
        layers=LAYERS,
        detours=DETOURS,
        first=FIRST_WORLD,
        last=FIRST_WORLD + WORLDS_PER_TASK - 1,
        seed=SEED,
        python=platform.python_version(),
        versions=", ".join(f"{name} {version(name)}" for name in packages),
        checksums="\n".join(f"    {sha256_file(path)}  {path.name}" for path in sorted(folder.iterdir())),
        **facts,
    )


def main(goal: Path) -> None:
    """Play, train, replace the old model."""
    started = time.monotonic()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # fastest for so little work, and the same order everywhere
    set_seed(SEED)
    print(f"seed {SEED}, worlds from {FIRST_WORLD}", file=sys.stderr)
    episodes = played()
    rows = [row for each in episodes for row in each]
    tokenizer = make_tokenizer(rows)
    model = make_model(tokenizer)
    learned, measured = (
        tokenised([row for each in part for row in each], tokenizer)
        for part in (episodes[EPISODES_MEASURED:], episodes[:EPISODES_MEASURED])
    )
    before = measure(model, measured)
    train(model, learned, epochs=EPOCHS)
    facts = {
        "n_weights": model.num_parameters(),
        "n_tokens": len(tokenizer),
        "n_rows": len(learned),
        "n_episodes": len(episodes) - EPISODES_MEASURED,
        "before": before,
        "loss": measure(model, measured),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        worlds = {
            "env": "babyai",
            "tasks": list(TASKS),
            "seeds": f"{FIRST_WORLD}:{FIRST_WORLD + WORLDS_PER_TASK}",
        }
        (folder / "worlds.json").write_text(f"{json.dumps(worlds)}\n", encoding="utf-8")
        for path in folder.iterdir():
            path.chmod(0o644)
        (folder / "README.md").write_text(readme(folder, **facts), encoding="utf-8")
        shutil.rmtree(goal, ignore_errors=True)
        shutil.copytree(folder, goal)
        goal.chmod(0o755)
    print(
        f"{goal}  {facts['n_weights']:,} weights  loss {before:.3f} -> {facts['loss']:.3f}"
        f"  {time.monotonic() - started:.0f} s"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOAL)
