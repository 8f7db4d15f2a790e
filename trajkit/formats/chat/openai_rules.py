"""Rules of OpenAI's fine-tuning service for rows.

From the row schema of the `manual_spec` branch of openai/openai-openapi, and from published refusals, such as
`contains an extra "weight"` and `message contains an invalid token: <|fim_suffix|>`.
"""

from __future__ import annotations

import re

MIN_ROWS = 10
"""`Training file has 7 example(s), but must have at least 10 examples`."""

ROW_KEYS = frozenset({"messages", "tools", "parallel_tool_calls"})
"""Allowed fields of a row."""
MESSAGE_KEYS = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "weight", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
"""Allowed fields of a message, by role."""
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Allowed names of functions."""
SPECIAL_TOKEN = re.compile(
    r"<\|(?:endoftext|endofprompt|fim_prefix|fim_middle|fim_suffix|im_start|im_end|im_sep)\|>"
)
"""`message contains an invalid token: <|fim_suffix|>`."""
