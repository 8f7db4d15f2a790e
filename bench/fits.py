"""What each GPU holds of a model in training, by the number of GPUs that share it, as the plan says before.

    python bench/fits.py [--rows 1] [--length 4096]

Nothing is loaded: shapes are those of `trajkit random-model`. One token in seven of a batch is learned,
in bf16 with gradient checkpointing. A card of 24, 40 or 80 GB fits what takes at most 90 % of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CARDS, COUNTS = (24, 40, 80), (1, 2, 4, 8)
MOST = 0.9


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096)
    asked = parser.parse_args()
    from trajkit.models.random_model import shapes
    from trajkit.training.local.base_model import batch_memory, held, measured
    from trajkit.training.local.recipe import LocalRecipe

    print(f"| model | trained | {' | '.join(f'{n} GPU' for n in COUNTS)} | batch | fits |")
    print(f"|---|---|{'---|' * len(COUNTS)}---|---|")
    n_tokens = asked.rows * asked.length
    for name, facts in shapes().items():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(facts), encoding="utf-8")
            for words, lora in (("LoRA", {}), ("all weights", None)):
                given = {"lora": lora, "precision": "bf16", "gradient_checkpointing": True}
                recipe = LocalRecipe.model_validate(given)
                sizes = measured(folder, recipe)
                batch = batch_memory(sizes, n_tokens, n_tokens // 7) or 0
                taken = {n: held(recipe, sizes, n) + batch for n in COUNTS}
                fits = (
                    next((f"{n} × {card}" for n in COUNTS if taken[n] <= MOST * card * 1e9), f"no {card}")
                    for card in CARDS
                )
                cells = " | ".join(f"{taken[n] / 1e9:.1f}" for n in COUNTS)
                print(f"| {name} | {words} | {cells} | {batch / 1e9:.1f} | {', '.join(fits)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
