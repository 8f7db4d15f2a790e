"""Train a tiny base model that reads TextWorldExpress' cookingworld, from nothing: `sample:tiny-base` cannot.

needs    trajkit[textworld,local], Java 17 or newer; no key, no network, no GPU
minutes  5 on one thread
cost     none
leaves   the folder of its argument: a Llama of the shape of tiny-base, its tokenizer and chat template

It imitates a poor cook, so that something is left to learn: the game's own path to the goal, with any valid
action instead at 40 % of the steps. Its worlds, and all words of its tokenizer, are of the training fold, and
the prompts those that trajkit writes itself. The same versions give the same bytes.

Run as `python recipes/tiny_textworld.py cook`; `recipes/results_textworld.py` does it by itself.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tiny_base import (
    CONTEXT,
    PADDING,
    START,
    STOP,
    TEMPLATE,
    Row,
    make_model,
    measure,
    texts,
    tokenised,
    train,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, set_seed
from transformers.utils import logging

from trajkit.environments.textworld import TextWorld
from trajkit.rollouts.own_prompt import OwnPrompts
from trajkit.rollouts.plan import Job
from trajkit.rollouts.policies import Past, Situation

GAME = "cookingworld"
PARAMETERS = {
    "numLocations": 1,
    "includeDoors": 0,
    "limitInventorySize": 0,
    "numDistractorItems": 2,
    "numIngredients": 1,
}
"""Only a kitchen, with one ingredient and two other things to eat."""
HISTORY = 12
"""Past steps shown: the recipe is read at the beginning, and needed at the end."""

SEED = 0
FIRST_WORLD = 3_000_000  # far from usual seeds
WORLDS = 180
MOST_STEPS = 16
MISTAKES = 0.4
EPISODES_MEASURED = 10
EPOCHS = 4


def played() -> list[list[Row]]:
    """The cook's episodes."""
    chance = random.Random(SEED)
    environment = TextWorld(GAME, max_steps=MOST_STEPS, **PARAMETERS)
    try:
        return [list(episode(environment, FIRST_WORLD + world, chance)) for world in range(WORLDS)]
    finally:
        environment.close()


def solution(environment: TextWorld, seed: int) -> list[str]:
    """The game's own path to the goal."""
    environment.reset(seed)
    path, is_over = [], False
    while not is_over:
        path.append(environment.expert_action())
        result = environment.step(path[-1])
        is_over = result.terminated or result.truncated
    return path


def episode(environment: TextWorld, seed: int, chance: random.Random) -> Iterator[Row]:
    """The steps of one episode: the path as far as it can be gone after each mistake."""
    path, past = solution(environment, seed), list[Past]()
    start, prompts = environment.reset(seed), OwnPrompts(None, history=HISTORY)
    observation = start.observation
    while True:
        job, number = Job("cook", GAME, seed), len(past)
        situation = Situation(job, "", number, start.mission, observation, past, environment, {})
        prompt, legal = prompts.of(situation), environment.legal_actions()
        place = next((at for at, action in enumerate(path) if action in legal), None)
        if place is None or chance.random() < MISTAKES:
            action = chance.choice(legal)
        else:
            action = path[place]
            path = path[place + 1 :]
        yield Row(tuple({**message} for message in prompt.messages), prompt.answer(action).text)
        result = environment.step(action)
        past.append(Past(observation, action, result.action_valid))
        observation = result.observation
        if result.terminated or result.truncated:
            return


THING = re.compile(r"^- examine (.+)$", re.MULTILINE)
PART = re.compile(r"(?<=[.:] )|(?=\n)")
WORD = re.compile(r"[^\S\n]?[A-Za-z]+|[0-9]|\n+|[^\sA-Za-z0-9]+")
OFTEN = 20


def pieces_of(rows: Sequence[Row]) -> list[str]:
    """The texts that become tokens: names of things, frequent phrases around them, and words."""
    said = [text for row in rows for text in texts(row)]
    things = sorted({f" {name}" for text in said for name in THING.findall(text)}, key=len, reverse=True)
    between = re.compile("|".join(map(re.escape, things)))
    around = Counter(
        piece for text in said for part in PART.split(text) for piece in between.split(part) if piece.strip()
    )
    words = Counter(word for text in said for word in WORD.findall(text))
    often = [piece for piece, n in around.items() if n >= OFTEN and len(piece) > 1]
    return sorted({*things, *often, *(word for word, n in words.items() if n > 1)})


def make_tokenizer(rows: Sequence[Row]) -> PreTrainedTokenizerFast:
    """A tokenizer of the texts of the training fold, and bytes, that uses the fewest pieces."""
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    scores = dict.fromkeys((PADDING, START, STOP), -9.0)  # never found in a text: they are special
    scores |= dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()), -3.0)
    heads = ("system\n", "user\n", "assistant\n")
    scores |= {as_bytes.pre_tokenize_str(piece)[0][0]: -1.0 for piece in (*heads, *pieces_of(rows))}
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


def main(goal: Path) -> None:
    """Play, train, write the model."""
    started = time.monotonic()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # fastest for so little work, and the same order everywhere
    set_seed(SEED)
    if goal.exists():
        raise SystemExit(f"{goal} is there already")
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
    after = measure(model, measured)
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
        shutil.copytree(name, goal)
    print(
        f"{goal}  {model.num_parameters():,} weights  {len(tokenizer):,} tokens  {len(learned):,} answers"
        f"  loss {before:.3f} -> {after:.3f}  {time.monotonic() - started:.0f} s"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
