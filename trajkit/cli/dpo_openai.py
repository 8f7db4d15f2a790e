"""`trajkit dpo openai`: direct preference optimisation at a service that speaks OpenAI's fine-tuning API."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli.hosted import pair_options, pay_options, train_hosted
from trajkit.cli.option import thoughts_option
from trajkit.cli.sft_openai import NAMES, address_options, learning_options, usual_model_option


@click.command()
@pair_options
@usual_model_option
@address_options
@learning_options
@click.option(
    "--beta", metavar="X|auto", help="The higher, the nearer it stays to the model.  [default: auto]"
)
@thoughts_option
@pay_options
def openai(base: str | None, profile: str | None, base_url: str | None, **asked: Any) -> int:
    """Tune a model on pairs at OpenAI, or wherever its fine-tuning API is spoken: the better answer wins.

    The pairs are those of `trajkit pairs`; of a pair with several turns the first answers that differ are
    learned. The plan comes first, and nothing is sent before you agree. Keys, addresses and jobs are as with
    `trajkit sft openai`.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    settings = {"profile": profile, "base_url": base_url}
    service = connect("openai", {name: value for name, value in settings.items() if value is not None})
    usual = getattr(service, "usual_model", None)
    given = {name: asked[name] for name in (*NAMES, "beta")}
    return train_hosted(service, base or default_model("openai", usual), given, asked, method="dpo")
