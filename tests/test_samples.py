"""What comes with trajkit by name; the tiny model is what its README says, wherever a model is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trajkit._core.files import sha256_file
from trajkit._core.samples import model_path, samples
from trajkit.errors import RequestError, StoreError
from trajkit.formats.tokens.tokenizer import load_tokenizer
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

NAME = "sample:tiny-base"
FOLDER = Path(__file__).parent.parent / "data" / "tiny-base"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
SMALL = 3_000_000


def test_a_model_is_found_by_name_and_others_are_left_as_they_are() -> None:
    assert Path(model_path(NAME)) == FOLDER
    assert model_path("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert set(samples("config.json")) == {"tiny-base"}


def test_names_that_there_are_not_list_those_that_there_are() -> None:
    with pytest.raises(RequestError, match="there is no sample model 'babyai'") as caught:
        model_path("sample:babyai")
    assert caught.value.hint == f"models: {NAME}"
    with pytest.raises(StoreError) as store:
        open_store(NAME)
    assert store.value.hint == "samples: sample:babyai"


def test_the_readme_has_the_checksum_of_every_file() -> None:
    listed = dict(
        reversed(line.split()) for line in re.findall(r"^    [0-9a-f]{64}  .+$", README, re.MULTILINE)
    )
    files = {path.name: path for path in FOLDER.iterdir() if path.name != "README.md"}
    assert listed == {name: sha256_file(path) for name, path in files.items()}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < SMALL
    assert "python recipes/tiny_base.py" in README


def test_it_has_a_quarter_of_a_million_weights() -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(model_path(NAME))
    assert model.dtype == torch.float32
    assert f"{model.num_parameters():,}" == re.findall(r"model of ([\d,]+) weights", README)[0] == "251,712"


def test_its_template_marks_the_answers_and_their_ends() -> None:
    tokenizer = load_tokenizer(NAME)
    assert tokenizer.has_marks
    call = {"function": {"name": "go", "arguments": '{"n": 1}'}}
    messages = [
        {"role": "system", "content": "You steer a robot."},
        {"role": "user", "content": "Observation:\na wall 2 steps forward"},
        {"role": "assistant", "content": "turn left", "reasoning_content": "A wall."},
        {"role": "tool", "content": "done"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    rendered = tokenizer.render(messages, [{"type": "function", "function": {"name": "go"}}])
    assert rendered.ends_learned == (True, True)
    import transformers

    decode = transformers.AutoTokenizer.from_pretrained(model_path(NAME)).decode
    said = [decode(rendered.tokens[start:end]) for start, end in rendered.spans]
    assert said == [
        "<think>A wall.</think>turn left<|im_end|>",
        '<call>{"name": "go", "arguments": {"n": 1}}</call><|im_end|>',
    ]


def test_every_prompt_of_the_sample_store_is_short_for_it() -> None:
    tokenizer = load_tokenizer(NAME)
    longest = 0
    for step in (step for episode in open_dataset("sample:babyai").limit(20) for step in episode.steps):
        messages = [
            {"role": message.role.value, "content": "".join(block.text for block in message.content)}  # type: ignore[union-attr]
            for message in (*step.messages, step.completion)
        ]
        longest = max(longest, tokenizer.render(messages).n_tokens)
    assert 80 < longest < 200
