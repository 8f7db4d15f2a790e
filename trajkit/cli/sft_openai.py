"""`trajkit sft openai`: tune a model at OpenAI, or at a service that speaks its fine-tuning API."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli.hosted import hosted_options, model_option, train_hosted
from trajkit.cli.option import adding

NAMES = ("n_epochs", "batch_size", "learning_rate_multiplier", "seed", "suffix")
"""What `learning_options` reads, by the service's names."""


address_options = adding(
    click.option(
        "--profile",
        type=click.Choice(["openai", "azure", "nebius", "bedrock", "other"]),
        help="Who speaks the API there.  [default: whose address it is]",
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help="Address of the API, up to /v1.  [default: of the profile, or OPENAI_BASE_URL]",
    ),
)
"""`--profile` and `--base-url`: which service, and where."""

learning_options = adding(
    click.option("--n-epochs", metavar="N|auto", help="Passes over the rows.  [default: auto]"),
    click.option("--batch-size", metavar="N|auto", help="Rows in a batch.  [default: auto]"),
    click.option(
        "--learning-rate-multiplier",
        metavar="X|auto",
        help="Times the service's own learning rate.  [default: auto]",
    ),
    click.option("--seed", type=int, help="Of the job.  [default: drawn by the service]"),
    click.option("--suffix", metavar="NAME", help="In the name of the tuned model; up to 64 characters."),
)
"""The hyperparameters that all methods have."""

usual_model_option = model_option("trajkit.toml, or of the profile")
"""The model, which a profile may have a usual one of."""


@click.command()
@usual_model_option
@address_options
@learning_options
@hosted_options
def openai(base: str | None, profile: str | None, base_url: str | None, **asked: Any) -> int:
    """Tune a model at OpenAI, or wherever its fine-tuning API is spoken: Azure, Nebius, Bedrock, any URL.

    As it stands, it takes the last store and the usual model, sets a tenth of the worlds aside to measure,
    and shows a plan; nothing is sent before you agree. The key comes from the environment: OPENAI_API_KEY, or
    AZURE_OPENAI_API_KEY, NEBIUS_API_KEY, AWS_BEARER_TOKEN_BEDROCK. Ctrl-C stops the waiting and not the job.
    The same data, model and recipe are never paid for twice: the job that is there is found, here or at the
    service.
    """
    from trajkit.commands.started import default_model
    from trajkit.training.hosted.services import connect

    settings = {"profile": profile, "base_url": base_url}
    service = connect("openai", {name: value for name, value in settings.items() if value is not None})
    usual = getattr(service, "usual_model", None)
    return train_hosted(
        service, base or default_model("openai", usual), {name: asked[name] for name in NAMES}, asked
    )
