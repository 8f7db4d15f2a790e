from __future__ import annotations

from pathlib import Path

import pytest

from trajkit.errors import RequestError
from trajkit.formats.validation import tokens


def test_a_small_model_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(tokens, "_SECONDS", 0.05)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=32,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert tokens.trained_tokens_per_second(str(tmp_path)) > 0


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no model in"):
        tokens.trained_tokens_per_second(str(tmp_path))
