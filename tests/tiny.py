"""Tokenizers and models that are small enough for a test: every byte is a token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ '<|im_end|>' }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


def byte_tokenizer(
    folder: Path,
    template: str | None = TEMPLATE,
    *,
    special: Sequence[str] = ("<|im_end|>",),
    merged: Sequence[str] = (),
) -> str:
    """Write a tokenizer with a chat template into a folder, and name that. Turns end with <|im_end|>.

    Where there are texts to merge bytes of, 40 merges are learned from them.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = len(alphabet) + len(special) + (40 if merged else 0)
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False
    )
    made.train_from_iterator(merged, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    return str(folder)


def make_tiny(folder: Path) -> str:
    """Write a model of random weights with its tokenizer into a folder, and name that."""
    import torch
    import transformers

    byte_tokenizer(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)
