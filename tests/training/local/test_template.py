from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import TEMPLATE, byte_tokenizer
from trajkit.errors import RequestError
from trajkit.training.local.tokens.template import OFFERED, save_tokenizer, spelled
from trajkit.training.local.tokens.tokenised import Limit, TokenTally, open_tokens, tokenise

CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")
TALK = [
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "question"},
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "end", "reasoning_content": "hm"},
]


def saved(tmp_path: Path, template: str | None, base: str, **options: Any) -> Any:
    return save_tokenizer(base, tmp_path / "kept", tokenizer=options.get("tokenizer"), template=template)


def learned(tmp_path: Path, tokenizer: Any, talk: list[dict[str, Any]]) -> list[str]:
    """The texts that are learned of a conversation."""
    from transformers import AutoTokenizer

    n_answers = sum(message["role"] == "assistant" for message in talk)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": talk, "weights": [1.0] * n_answers}) + "\n")
    tally = tokenise(tmp_path / "rows.jsonl", tmp_path / "rows.arrow", tokenizer, limit=Limit(1000, ""))
    assert isinstance(tally, TokenTally)
    (row,) = open_tokens(tmp_path / "rows.arrow").table.to_pylist()
    reader = AutoTokenizer.from_pretrained(tmp_path / "kept")
    runs: list[list[int]] = [[]]
    for token, weight in zip(row["input_ids"], row["weights"], strict=True):
        if weight:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [reader.decode(run) for run in runs if run]


@pytest.mark.parametrize(("name", "end"), [("chatml", "<|im_end|>"), ("plain", "<|im_end|>")])
def test_what_is_offered_marks_the_answers_and_their_ends(tmp_path: Path, name: str, end: str) -> None:
    base = byte_tokenizer(tmp_path / "base", None, special=CHATML_TOKENS)
    tokenizer = saved(tmp_path, name, base)
    assert tokenizer.has_marks
    assert learned(tmp_path, tokenizer, TALK) == [f"answer{end}", f"<think>\nhm\n</think>\n\nend{end}"]


def test_a_tokenizer_without_a_template_says_which_one_fits(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has no chat template") as caught:
        saved(tmp_path, None, byte_tokenizer(tmp_path / "ml", None, special=CHATML_TOKENS))
    assert "--chat-template chatml" in (caught.value.hint or "")
    plain = byte_tokenizer(tmp_path / "base", None)
    with pytest.raises(RequestError, match="has no chat template") as caught:
        saved(tmp_path, None, plain)
    assert "--chat-template plain" in (caught.value.hint or "")
    with pytest.raises(RequestError, match=r"no token <\|im_start\|>"):
        saved(tmp_path, "chatml", plain)


def test_a_model_without_a_tokenizer_takes_another_ones(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(RequestError, match="no tokenizer in") as caught:
        saved(tmp_path, None, str(tmp_path / "bare"))
    assert "--tokenizer" in (caught.value.hint or "")
    other = byte_tokenizer(tmp_path / "other")
    assert saved(tmp_path, None, str(tmp_path / "bare"), tokenizer=other).has_marks


def test_tools_are_not_lost_without_a_word(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, "plain", byte_tokenizer(tmp_path / "base", None))
    with pytest.raises(RequestError, match="no way to write tools"):
        tokenizer.render([*TALK, {"role": "tool", "content": "4"}])


def test_a_file_is_a_template_and_part_of_the_recipe_by_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text(TEMPLATE)
    first = spelled(str(file))
    tokenizer = saved(tmp_path, str(file), byte_tokenizer(tmp_path / "base", None))
    assert learned(tmp_path, tokenizer, TALK[1:3]) == ["answer<|im_end|>"]
    file.write_text(TEMPLATE + " ")
    assert spelled(str(file)) != first
    with pytest.raises(RequestError, match="no chat template nowhere") as caught:
        spelled("nowhere")
    assert (caught.value.hint or "").startswith(", ".join(OFFERED))


WITHOUT_MARKS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
FORGETS = (  # as templates do that leave earlier thoughts out
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(thought){% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_a_template_without_marks_learns_the_same(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, None, byte_tokenizer(tmp_path / "base", WITHOUT_MARKS))
    assert not tokenizer.has_marks
    assert learned(tmp_path, tokenizer, TALK) == ["answer<|im_end|>", "end<|im_end|>"]


def test_a_template_that_rewrites_what_was_said_is_not_guessed_at(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, None, byte_tokenizer(tmp_path / "base", FORGETS))
    assert learned(tmp_path, tokenizer, TALK[:3]) == ["(thought)answer<|im_end|>"]
    with pytest.raises(RequestError, match="renders them differently") as caught:
        learned(tmp_path, tokenizer, TALK)
    assert "--unit step" in (caught.value.hint or "")


def test_an_end_outside_of_the_marks_is_learned(tmp_path: Path) -> None:
    """With the end outside, TRL's trainer warns and the model never learns to stop."""
    outside = TEMPLATE.replace(
        "{{ '<|im_end|>' }}{% endgeneration %}", "{% endgeneration %}{{ '<|im_end|>' }}"
    )
    assert outside != TEMPLATE
    tokenizer = saved(tmp_path, None, byte_tokenizer(tmp_path / "base", outside))
    assert learned(tmp_path, tokenizer, TALK[:3]) == ["answer<|im_end|>"]


def test_answers_that_never_end_are_counted(tmp_path: Path) -> None:
    endless = TEMPLATE.replace("{{ '<|im_end|>' }}", "")
    tokenizer = saved(tmp_path, None, byte_tokenizer(tmp_path / "base", endless))
    row = {"messages": TALK, "weights": [1.0, 0.0]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    limit = Limit(1000, "")
    assert tokenise(tmp_path / "rows.jsonl", tmp_path / "rows.arrow", tokenizer, limit=limit).n_endless == 1


def test_a_tokenizer_of_another_model_is_found_out(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, None, byte_tokenizer(tmp_path / "base"))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": TALK[1:3], "weights": [1.0]}) + "\n")
    with pytest.raises(RequestError, match="vocabulary has 20"):
        tokenise(tmp_path / "rows.jsonl", tmp_path / "rows.arrow", tokenizer, limit=Limit(1000, "", 20))
