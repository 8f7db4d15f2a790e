"""Save the tokenizer of a job with its chat template: the model's own, or requested ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate

_START, _END = "<|im_start|>", "<|im_end|>"

# tools are refused: without a way to render them, they would be lost silently
_TURNS = """\
{%- for message in messages %}
{%- if message.tool_calls or message.role == 'tool' or tools %}
{{- raise_exception('it has no way to write tools: give a template that has, as a file') }}
{%- endif %}
{%- if message.role == 'assistant' %}
{{- START + 'assistant\\n' }}
{%- generation %}
{%- if message.reasoning_content %}
{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
{%- endif %}
{{- message.content + END }}
{%- endgeneration %}
{{- '\\n' }}
{%- else %}
{{- START + message.role + '\\n' + message.content + STOP + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- START + 'assistant\\n' }}
{%- endif %}
"""
OFFERED = {
    "chatml": _TURNS.replace("START", f"'{_START}'").replace("END", f"'{_END}'").replace("STOP", f"'{_END}'"),
    "plain": _TURNS.replace("START", "'### '").replace("END", "eos_token").replace("STOP", "''"),
}
"""Templates that mark completions: ChatML, which Qwen and many others use, and one that needs no special
token except for the one that ends a text."""


def save_tokenizer(base: str, folder: Path, *, tokenizer: str | None, template: str | None) -> ChatTemplate:
    """Save the tokenizer of a job in a folder, and open it.

    Args:
        base: Folder or id of the model.
        folder: Folder for the tokenizer.
        tokenizer: Folder or id of another tokenizer; None for the model's own.
        template: `chatml`, `plain`, or a file; None for the tokenizer's own.

    Raises:
        RequestError: There is no tokenizer or chat template, or they do not fit each other.
        MissingExtra: transformers is not installed.
    """
    transformers = need("transformers", extra="local")
    name = tokenizer or base
    try:
        found = pretrained(transformers.AutoTokenizer, name)
    except (OSError, ValueError, KeyError) as error:
        raise RequestError(
            f"no tokenizer in {name}: {str(error).splitlines()[0]}",
            hint="--tokenizer DIR|ID takes it from another model, such as its base model",
        ) from error
    if template is not None:
        found.chat_template = _offered(found, template, name)
    if not found.chat_template:
        fitting = "chatml" if _is_token(found, _START) and _is_token(found, _END) else "plain"
        raise RequestError(
            f"{name} has no chat template to render conversations with",
            hint=f"--chat-template {fitting}, or a file with {{% generation %}} around completions",
        )
    found.save_pretrained(folder)
    opened = ChatTemplate(str(folder))
    opened.name = name if template is None else f"{name} with {template}"
    return opened


def spelled(template: str | None) -> str | None:
    """Return a template's name in a recipe: for a file, its name and the hash of its content."""
    if template is None or template in OFFERED:
        return template
    return f"{Path(template).name} sha256:{hashlib.sha256(_read(template).encode()).hexdigest()}"


def _offered(tokenizer: Any, template: str, name: str) -> str:
    if template not in OFFERED:
        return _read(template)
    if template == "chatml":
        missing = [token for token in (_START, _END) if not _is_token(tokenizer, token)]
        if missing:
            raise RequestError(
                f"the tokenizer of {name} has no token {missing[0]}, which chatml needs",
                hint="--chat-template plain ends a completion with the token that ends a text",
            )
        tokenizer.eos_token = _END  # generation stops there
    elif tokenizer.eos_token is None:
        raise RequestError(f"the tokenizer of {name} has no token that ends a text", hint="give a file")
    return OFFERED[template]


def _is_token(tokenizer: Any, text: str) -> bool:
    return tokenizer.convert_tokens_to_ids(text) not in (None, tokenizer.unk_token_id)


def _read(template: str) -> str:
    try:
        return Path(template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        offered = ", ".join(OFFERED)
        raise RequestError(f"no chat template {template}: {error}", hint=f"{offered}, or a file") from error
