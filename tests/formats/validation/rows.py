"""Rows of training files, and chat templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajkit.formats.validation.file import Validation

Check = Callable[..., Validation]

MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "{% generation %}{{ m.content }}{{ '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
ENDLESS = MARKED.replace("{{ '<|im_end|>' }}{% endgeneration %}", "{% endgeneration %}{{ '<|im_end|>' }}")


def chat(*turns: str, **keys: Any) -> dict[str, Any]:
    """A row whose turns are the user's and the assistant's by turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns or ("hi", "yo"))]
    return {"messages": messages, **keys}


def called(*, arguments: Any = '{"to": "north"}', name: str = "move", tools: Any = ...) -> dict[str, Any]:
    """A row whose answer calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    row: dict[str, Any] = {
        "messages": [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]
    }
    offered = {"type": "function", "function": {"name": "move", "parameters": {"type": "object"}}}
    return row | {"tools": [offered] if tools is ... else tools}
