from __future__ import annotations

import json
from pathlib import Path

import pytest

import trajkit
from trajkit.errors import RequestError, StoreError
from trajkit.models.random_model import shapes


@pytest.mark.parametrize(
    ("shape", "n_weights"),
    [("qwen3-0.6b", 596_049_920), ("llama-3.2-1b", 1_235_814_400), ("qwen3-8b", 8_190_735_360)],
)
def test_a_shape_has_as_many_weights_as_the_real_model(shape: str, n_weights: int) -> None:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**shapes()[shape])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert model.num_parameters() == n_weights


def test_a_random_model_is_the_same_for_a_seed_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    small = {**shapes()["qwen3-0.6b"], "vocab_size": 2048, "hidden_size": 16, "intermediate_size": 16}
    (tmp_path / "shapes.json").write_text(json.dumps({"qwen3-0.6b": small}))
    monkeypatch.setattr("trajkit.models.random_model._SHAPES", tmp_path / "shapes.json")
    made = [
        trajkit.random_model("qwen3-0.6b", output=tmp_path / name, layers=1, seed=seed)
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    ]
    assert made[0].n_weights == made[1].n_weights
    one, same, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "other")
    )
    assert one == same
    assert one != other
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "one")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    said = model.generate(**tokenizer("go", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert said.shape[1] > 1


def test_a_random_model_replaces_nothing_and_its_shape_is_known(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="exists already"):
        trajkit.random_model("qwen3-0.6b", output=tmp_path, layers=1)
    with pytest.raises(RequestError, match="no shape 'gpt-5'"):
        trajkit.random_model("gpt-5", output=tmp_path / "new")  # type: ignore[arg-type]
