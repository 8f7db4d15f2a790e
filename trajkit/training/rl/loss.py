"""The loss of played steps: a clipped objective with a KL penalty and a correction for drift.

The loss equals that of TRL's GRPOTrainer on the same rows (a test compares them); TRL's own loop cannot take
one row per step (https://github.com/huggingface/trl/issues/4543).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trajkit._core.lazy import need
from trajkit.training.rl.recipe import RlRecipe


class StepRow(NamedTuple):
    """One step of an episode: the tokens of the prompt and the sampled tokens."""

    prompt: Sequence[int]
    """Token ids of the prompt."""
    completion: Sequence[int]
    """Sampled token ids, in order."""
    logprobs: Sequence[float]
    """Natural-log probability of each under the distribution it was sampled from."""
    allowed: Sequence[bytes] | None = None
    """Tokens that a grammar allowed at each position, as in `Sampled`; None without a grammar."""


class Scored(NamedTuple):
    """The outputs of a model for some rows."""

    logps: Any
    """Natural-log probability of each sampled token at the recipe's temperature, among the tokens that its
    grammar allowed, [rows, tokens]."""
    entropy: Any
    """Entropy of the distribution at each token, in nats, [rows, tokens]."""
    values: Any
    """Return that the value head expects from each step on, [rows]; None without a value head."""


class Loss(NamedTuple):
    """Sums over some rows, so that batches of any size add up to one step of the optimizer."""

    total: Any
    """The loss, a scalar tensor with its gradient; already divided by the size of the whole step."""
    n_clipped: Any
    """Number of tokens for which the clipping has an effect."""
    value_loss: Any
    """Half the mean squared error of the value head; None without a value head."""


def collate(rows: Sequence[StepRow], *, padding: int, device: Any) -> dict[str, Any]:
    """Build tensors of some rows. A row that is the beginning of another one is computed once, within it.

    So a conversation that only grows is one sequence with several answers. A sequence is padded on the left
    before its first answer, and on the right after its last one.

    Returns:
        `input_ids`, `attention_mask` and `position_ids` int64 [sequences, tokens]; `drawn` int64
        [rows, completion] with the sampled tokens; `sequence` and `start` int64 [rows], the row's sequence,
        and where its answer begins, counted from `n_prompt`, the first answer's place in every sequence;
        `mask` float32 [rows, completion] (1 for a sampled token), `sampled` float32 [rows, completion] (the
        log-probabilities of the sampling); if a grammar constrained any row, `allowed` uint8
        [rows, completion, vocabulary / 8], a bit for each token.
    """
    torch = need("torch", extra="local")
    shared = [(said, min(len(rows[line].prompt) for line in lines), lines) for said, lines in _shared(rows)]
    n_prompt, n_completion = max(first for _, first, _ in shared), max(len(row.completion) for row in rows)
    width = n_prompt + max(len(said) - first for said, first, _ in shared)
    tokens = np.full((len(shared), width), padding, dtype=np.int64)
    seen = np.zeros_like(tokens)
    drawn = np.full((len(rows), n_completion), padding, dtype=np.int64)
    sampled, mask = (np.zeros(drawn.shape, dtype=np.float32) for _ in range(2))
    sequence, start = (np.zeros(len(rows), dtype=np.int64) for _ in range(2))
    for at, (said, first, lines) in enumerate(shared):
        here = slice(n_prompt - first, n_prompt - first + len(said))
        tokens[at, here], seen[at, here] = said, 1
        for line in lines:
            n = len(rows[line].completion)
            drawn[line, :n], mask[line, :n] = rows[line].completion, 1
            sampled[line, :n] = rows[line].logprobs
            sequence[line], start[line] = at, len(rows[line].prompt) - first
    made = {
        "input_ids": tokens,
        "attention_mask": seen,
        "position_ids": (seen.cumsum(axis=1) - 1).clip(min=0),
        "drawn": drawn,
        "sequence": sequence,
        "start": start,
        "mask": mask,
        "sampled": sampled,
    }
    bound = [(line, row.allowed) for line, row in enumerate(rows) if row.allowed]
    if bound:
        n_bytes = len(zlib.decompress(bound[0][1][0]))
        made["allowed"] = np.full((*mask.shape, n_bytes), 255, dtype=np.uint8)
        for line, each in bound:
            bits = b"".join(map(zlib.decompress, each))
            made["allowed"][line, : len(each)] = np.frombuffer(bits, dtype=np.uint8).reshape(-1, n_bytes)
    tensors = {name: torch.from_numpy(array).to(device) for name, array in made.items()}
    return {**tensors, "n_prompt": n_prompt}


def _shared(rows: Sequence[StepRow]) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return the sequences that are not the beginning of another, each with its rows, in row order."""
    whole = [(*row.prompt, *row.completion) for row in rows]
    found: list[tuple[tuple[int, ...], list[int]]] = []
    for line in sorted(range(len(rows)), key=lambda line: -len(whole[line])):
        said = whole[line]
        lines = next((lines for other, lines in found if other[: len(said)] == said), None)
        if lines is None:
            found.append((said, lines := []))
        lines.append(line)
    return sorted(found, key=lambda each: min(each[1]))


def scored(model: Any, batch: dict[str, Any], *, temperature: float, value_head: Any = None) -> Scored:
    """Run a model on a batch of `collate`.

    Args:
        model: A causal language model.
        batch: The batch.
        temperature: Divisor of the logits.
        value_head: Maps the last hidden state of a prompt to the expected return; None without a value head.
    """
    torch = need("torch", extra="local")
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    n_kept = batch["input_ids"].shape[1] - batch["n_prompt"] + 1
    made = model(
        **inputs,
        use_cache=False,
        logits_to_keep=n_kept,
        output_hidden_states=value_head is not None,
    )
    sequence, start = batch["sequence"], batch["start"]
    tokens = torch.arange(batch["drawn"].shape[1], device=start.device)
    places = (start[:, None] + tokens).clamp(max=n_kept - 1)
    logits = made.logits[sequence[:, None], places].float() / temperature
    if "allowed" in batch:
        bits = batch["allowed"][..., None] >> torch.arange(8, dtype=torch.uint8, device=logits.device) & 1
        is_allowed = bits.flatten(-2)[..., : logits.shape[-1]].bool()
        logits = logits.masked_fill(~is_allowed, torch.finfo(logits.dtype).min)
    chances = torch.log_softmax(logits, dim=-1)
    logps = chances.gather(-1, batch["drawn"][..., None])[..., 0]
    entropy = -(chances.exp() * chances).sum(dim=-1)
    values = None
    if value_head is not None:
        values = value_head(made.hidden_states[-1][sequence, batch["n_prompt"] - 1 + start].float())[:, 0]
    return Scored(logps, entropy, values)


def correction(old: Any, sampled: Any, mask: Any, recipe: RlRecipe) -> tuple[Any, Any]:
    """Weigh tokens, because they were sampled from another distribution than the one that is trained.

    Args:
        old: Log-probabilities under the trained model before the iteration's first optimizer step.
        sampled: Log-probabilities of the sampling.
        mask: 1 for sampled tokens.
        recipe: `importance` and its cap.

    Returns:
        The weight of each token, 0 if it is left out; and whether the cap had an effect on it.
    """
    ratio = (old - sampled).exp()
    cap = recipe.importance_cap
    if recipe.importance == "none" or recipe.algorithm == "awr":
        return mask, ratio < 0
    if recipe.importance == "token_truncate":
        return mask * ratio.clamp(max=cap), (ratio > cap) & (mask > 0)
    beyond = ((ratio > cap) | (ratio < 1 / cap)) & (mask > 0)
    return mask * ratio * ~beyond, beyond


def policy_loss(
    found: Scored, batch: dict[str, Any], recipe: RlRecipe, *, n_rows: int, n_tokens: float
) -> Loss:
    """Return the loss of a batch as a part of an optimizer step.

    With r the ratio of new to old probability, A the advantage of the step and w the correction:
    -w min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A) + beta KL - entropy_coef H for each token (Schulman
    et al. 2017, "Proximal policy optimization algorithms", eq. 7; Shao et al. 2024, "DeepSeekMath", eq. 3 and
    4, whose KL is exp(d) - d - 1 with d the difference of the reference's log-probability and the model's;
    times r, so that its gradient is that of the KL: DeepSeek-AI 2025, "DeepSeek-V3.2", section 3.1);
    with `cispo` -w min(r, epsilon_high) A log p, whose factor has no gradient (Chen et al. 2025,
    "MiniMax-M1"). For awr -w A log p, where A is the weight of the step (Peng et al. 2019, eq. 8).

    Args:
        found: Outputs of the model with its current weights.
        batch: A batch of `collate`, with `old`, `reference` and `weight` [rows, completion], `advantage`
            [rows], and `target` [rows] with a value head.
        recipe: Settings of the training.
        n_rows: Rows of the whole optimizer step.
        n_tokens: Tokens of the step that are not left out.
    """
    torch = need("torch", extra="local")
    weight, advantage = batch["weight"], batch["advantage"][:, None]
    mask = (weight > 0).float()
    ratio = (found.logps - batch["old"]).exp()
    high = recipe.epsilon if recipe.epsilon_high is None else recipe.epsilon_high
    if recipe.algorithm == "awr":
        token, clipped = -advantage * found.logps, ratio < 0
    elif recipe.loss_type == "cispo":
        token = -ratio.clamp(max=high).detach() * advantage * found.logps
        clipped = (ratio > high) & (advantage > 0)
    else:
        limited = ratio.clamp(1 - recipe.epsilon, 1 + high)
        token = -torch.min(ratio * advantage, limited * advantage)
        clipped = ((ratio < 1 - recipe.epsilon) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    token = token * weight
    if recipe.beta:
        apart = batch["reference"] - found.logps
        token = token + recipe.beta * ratio * (apart.exp() - apart - 1) * mask
    match recipe.loss_type:
        case "grpo":
            total = (token.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / n_rows
        case "dr_grpo":
            total = token.sum() / (n_rows * recipe.play.max_new_tokens)
        case _:
            total = token.sum() / n_tokens
    if recipe.entropy_coef:
        total = total - recipe.entropy_coef * (found.entropy * mask).sum() / n_tokens
    value_loss = None
    if found.values is not None:
        value_loss = 0.5 * (found.values - batch["target"]).square().sum() / n_rows
        total = total + recipe.value_coef * value_loss
    return Loss(total, (clipped & (mask > 0)).sum(), value_loss)
