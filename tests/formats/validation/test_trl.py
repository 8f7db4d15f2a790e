"""What TRL's own trainer learns from a file is what the loss report says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.formats.validation.rows import MARKED, Check, chat

ROWS: dict[str, list[dict[str, Any]]] = {
    "messages": [chat("hi", "yo"), chat("one", "two", "three", "four")],
    "prompt and completion": [
        {
            "prompt": [{"role": "user", "content": "hi"}],
            "completion": [{"role": "assistant", "content": "yo"}],
        },
        {
            "prompt": chat("a", "b", "c")["messages"],
            "completion": [{"role": "assistant", "content": "a longer answer"}],
        },
    ],
    "text": [{"text": "hi there"}],
}


def learned_by_trl(
    rows: list[dict[str, Any]], tokenizer: str, folder: Path, **options: Any
) -> list[list[int]]:
    """The labels that TRL's trainer makes of rows, without those it ignores."""
    import datasets
    import transformers
    import trl

    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    settings = trl.SFTConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        **options,
    )
    trainer = trl.SFTTrainer(
        model=transformers.LlamaForCausalLM(config),
        args=settings,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=transformers.AutoTokenizer.from_pretrained(tokenizer),
    )
    batch = trainer.data_collator(list(trainer.train_dataset))
    return [[label for label in labels if label != -100] for labels in batch["labels"].tolist()]


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.filterwarnings("ignore")  # TRL's own, of which there are many
def test_trl_learns_as_many_tokens_as_we_say(
    check: Check, make_tokenizer: Callable[[str | None], str], tmp_path: Path, kind: str
) -> None:
    tokenizer = make_tokenizer(MARKED)
    options = {"assistant_only_loss": True} if kind == "messages" else {}
    learned = learned_by_trl(ROWS[kind], tokenizer, tmp_path, **options)
    loss = check(*ROWS[kind], tokenizer=tokenizer).loss
    assert sum(map(len, learned)) == loss.n_learned


@pytest.mark.filterwarnings("ignore")
def test_trl_drops_what_we_say_is_cut_off_whole(
    check: Check, make_tokenizer: Callable[[str | None], str], tmp_path: Path
) -> None:
    tokenizer, rows = make_tokenizer(MARKED), ROWS["prompt and completion"]
    loss = check(*rows, tokenizer=tokenizer, max_length=24).loss
    assert (loss.n_answers_gone, loss.n_rows) == (1, 2)
    learned = learned_by_trl(rows, tokenizer, tmp_path, max_length=24)
    assert [len(labels) for labels in learned if labels] == [loss.n_kept]
