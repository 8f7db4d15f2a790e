"""A table for reinforcement learning: one row per step, with prompt, action, reward and done.

It has all steps, learned or not, in the order of play; unknown values are null.
"""

from __future__ import annotations

from trajkit.formats.base import TableFormat

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
"""Steps as transitions."""
