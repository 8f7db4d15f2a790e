"""Rows for reinforcement learning: steps as a table, and experience as Tinker, verl and prime-rl have it."""

from __future__ import annotations

from trajkit.formats.base import ExperienceFormat, TableFormat, Unit


def _tensor(values: str, dtype: str) -> str:
    return f"{{'data': {values}, 'dtype': '{dtype}', 'shape': [len({values})]}}"


# Tinker's losses compare position t of the input with target t, which is the token after it.
TINKER = ExperienceFormat(
    name="tinker",
    about="Tinker's Datum for the losses importance_sampling, ppo and cispo",
    columns={
        "model_input": "{'chunks': [{'type': 'encoded_text', 'tokens': input_ids[1:len(input_ids) - 1]}]}",
        "loss_fn_inputs": "{"
        f"'target_tokens': {_tensor('input_ids[2:]', 'int64')}, "
        f"'logprobs': {_tensor('old_logprobs[2:]', 'float32')}, "
        f"'advantages': {_tensor('advantages[2:]', 'float32')}, "
        f"'mask': {_tensor('loss_mask[2:]', 'float32')}"
        "}",
    },
    carries=frozenset({"input_ids", "loss_mask", "old_logprobs", "advantages"}),
)
"""A Datum per line: `types.Datum` of the package `tinker` (0.38.0), as JSON."""

_FIRST = "list_position(loss_mask, 1)"
_PROMPT = f"input_ids[1:{_FIRST} - 1]"

VERL = ExperienceFormat(
    name="verl",
    about="the fields of verl's DataProto for a policy update, not yet padded",
    columns={
        "uid": '"group"',
        "prompts": _PROMPT,
        "responses": f"input_ids[{_FIRST}:]",
        "response_mask": f"loss_mask[{_FIRST}:]",
        "rollout_log_probs": f"old_logprobs[{_FIRST}:]",
        "advantages": f"advantages[{_FIRST}:]",
        "reward": "total_reward",
        "data_source": "env_id",
    },
    carries=frozenset(
        {"input_ids", "loss_mask", "old_logprobs", "advantages", "group", "total_reward", "env_id"}
    ),
)
"""The prompt of a row ends where its first learned token stands; what comes later is the response."""

PRIME_RL = ExperienceFormat(
    name="prime-rl",
    about="prime-rl's TrainingSample: a row per step, with one advantage",
    columns={
        "prompt_ids": _PROMPT,
        "prompt_mask": f"repeat([false], len({_PROMPT}))",
        "completion_ids": f"input_ids[{_FIRST}:]",
        "completion_mask": f"CAST(loss_mask[{_FIRST}:] AS BOOLEAN[])",
        "completion_logprobs": f"old_logprobs[{_FIRST}:]",
        "advantage": f"advantages[{_FIRST}]",
        "reward": "total_reward",
    },
    carries=frozenset({"input_ids", "loss_mask", "old_logprobs", "advantages", "total_reward"}),
    units=(Unit.STEP,),
)
"""The fields of `TrainingSample` in prime-rl's `transport/types.py`, which has one advantage for a sample."""

TRANSITIONS = TableFormat(
    name="transitions",
    about="a Hugging Face dataset of steps: prompt, action, reward, done",
    columns={
        "episode_id": "s.episode_id",
        "step_index": "s.step_index",
        "env_id": "e.env_id",
        "task": "e.task",
        "seed": "e.seed",
        "prompt": "s.prompt",
        "answer": "s.completion",
        "observation": "s.observation",
        # an action that is a text is that text, any other its JSON
        "action": "coalesce(s.action_executed, CASE json_type(s.action) WHEN 'VARCHAR' THEN s.action ->> '$' "
        "WHEN 'NULL' THEN NULL ELSE CAST(s.action AS VARCHAR) END)",
        "action_valid": "s.action_valid",
        "legal_actions": "s.legal_actions",
        "reward": "s.reward",
        "done": "s.terminated OR s.truncated",
        "terminated": "s.terminated",
        "truncated": "s.truncated",
        "episode_reward": "e.total_reward",
        "outcome": "e.outcome",
        "loss_weight": "s.loss_weight",
        "mask_reason": "s.mask_reason",
    },
)
"""All steps as transitions, learned or not, in the order of play; unknown values are null."""
