"""Write a model with random weights, of a real model's shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from trajkit._core.output.console import count, line, size
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, Place


@dataclass(frozen=True)
class RandomModel(Result):
    """A model with random weights."""

    path: str
    """Its folder."""
    shape: str
    """The model whose shape it has."""
    n_weights: int
    """Number of weights."""
    n_bytes: int
    """Size of the folder."""

    def __str__(self) -> str:
        return line(f"{self.path}  {count(self.n_weights)} weights  {size(self.n_bytes)}")


def random_model(
    shape: Literal["qwen3-0.6b", "llama-3.2-1b", "qwen3-8b"],
    *,
    output: Annotated[Place, Option(short="-o", metavar="FOLDER")],
    tokenizer: Annotated[str, Option(metavar="DIR|ID")] = "sample:tiny-base",
    layers: int | None = None,
    seed: int = 0,
) -> RandomModel:
    """Write a model with random weights, of a real model's shape.

    It shows the speed and memory use of a training run or a server on this machine, without the real weights.
    It has learned nothing. Weights are in bf16: two bytes each.

    Args:
        shape: The model whose shape it has.
        output: The folder to write.
        tokenizer: Tokenizer of the model: a folder, an id, or a sample. The vocabulary is the shape's.
        layers: Number of layers. Default: the shape's.
        seed: Seed of the weights.

    Raises:
        RequestError: The tokenizer has more tokens than the shape.
        StoreError: `output` exists.

    Example:
        trajkit random-model qwen3-0.6b -o models/random
        trajkit sft local --model models/random --max-steps 5
    """
    from trajkit.models.random_model import write_random_model

    goal = Path(output)
    made = write_random_model(shape, goal, tokenizer=tokenizer, layers=layers, seed=seed)
    return RandomModel(str(goal), shape, *made)
