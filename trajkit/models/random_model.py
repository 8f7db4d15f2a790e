"""Write models with random weights in a real model's shape, to measure speed and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import building_folder
from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError

_SHAPES = Path(__file__).with_name("shapes.json")


class RandomModel(NamedTuple):
    """The written model."""

    n_weights: int
    """Number of weights."""
    n_bytes: int
    """Size of the folder."""


def shapes() -> dict[str, dict[str, Any]]:
    """Return the transformers configurations of the shapes, by name."""
    found: dict[str, dict[str, Any]] = json.loads(_SHAPES.read_text(encoding="utf-8"))
    return found


def write_random_model(
    shape: str, goal: Path, *, tokenizer: str, layers: int | None, seed: int
) -> RandomModel:
    """Write a model with random weights in bf16, and a tokenizer, as transformers does.

    Args:
        shape: Name of the shape.
        goal: The folder to write.
        tokenizer: Tokenizer of the model: a folder, an id, or `sample:NAME`.
        layers: Number of layers; None for the shape's.
        seed: Seed of the weights.

    Raises:
        RequestError: There is no such shape, or the tokenizer has more tokens than its vocabulary.
        StoreError: `goal` exists, or cannot be written.
        MissingExtra: torch or transformers is not installed.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    if shape not in shapes():
        raise RequestError(f"no shape {shape!r}", hint=f"shapes: {', '.join(shapes())}")
    reader = pretrained(transformers.AutoTokenizer, tokenizer)
    facts = shapes()[shape] | ({} if layers is None else {"num_hidden_layers": layers})
    if len(reader) > facts["vocab_size"]:
        raise RequestError(f"{tokenizer} has {len(reader):,} tokens, {shape} only {facts['vocab_size']:,}")
    ends = {"eos_token_id": reader.eos_token_id, "bos_token_id": reader.bos_token_id}
    config = transformers.AutoConfig.for_model(**facts, **ends, pad_token_id=reader.pad_token_id)
    torch.manual_seed(seed)
    with building_folder(goal) as folder:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        reader.save_pretrained(folder)
        n_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return RandomModel(model.num_parameters(), n_bytes)
