"""`trajkit register --emit`: a tuned model for any other client of OpenAI's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trajkit._core import console

if TYPE_CHECKING:
    from trajkit.commands.candidate import Candidate


def print_settings(found: Candidate, asked: dict[str, Any]) -> None:
    """Print address, model and sampling; the sampling is that of the variant whose prompts it learned."""
    from trajkit.commands.register import emitted, served_model

    value = emitted(found, asked)
    for note in found.notes:
        console.talk(f"note: {note}")
    if found.command is not None:
        console.talk("the model is served by")
        console.talk(f"  {found.command}")
    if asked["goal"] is None:
        console.result_json(value.model_dump(mode="json"))
        return
    model = served_model(found)
    console.result(f"{asked['goal']}  {model.model_name} at {model.api_base}")
