"""`trajkit register --emit`: a tuned model for any other client of OpenAI's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trajkit.cli import output
from trajkit.cli.page import visible
from trajkit.cli.register import known_config, names_of

if TYPE_CHECKING:
    from trajkit.cli.candidate import Candidate


def print_settings(found: Candidate, asked: dict[str, Any]) -> None:
    """Print address, model and sampling; the sampling is that of the variant whose prompts it learned."""
    from trajkit._files import refuse_existing, write_json
    from trajkit.registry.client import client_settings
    from trajkit.registry.configuration import Configuration
    from trajkit.registry.served import address_of
    from trajkit.registry.variant import template_of

    template: dict[str, Any] = {}
    if (pattern := known_config(asked["config"])) is not None:
        before = Configuration.read(pattern)
        names = names_of(found, before, asked)
        template = template_of(before, names["function"], names["template_variant"])
    model = address_of(found.model) if isinstance(found.model, str) else found.model
    value = client_settings(model, template).model_dump(mode="json")
    for note in found.notes:
        output.talk(f"note: {note}")
    if found.command is not None:
        output.talk(f"the model is served by\n  {found.command}")
    if asked["goal"] is None:
        output.result_json(value)
        return
    refuse_existing(asked["goal"])
    write_json(asked["goal"], value)
    output.result(f"{asked['goal']}  {visible(model.model_name)} at {model.api_base}")
