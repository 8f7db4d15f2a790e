"""`trajkit serve`: tuned models behind an OpenAI-compatible address on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from trajkit._core import console
from trajkit.cli.option import runs_option

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--name", "names", multiple=True, help="What clients call a MODEL; one for each, in their order."
)
@click.option(
    "--base", metavar="DIR|ID", help="What the adapters belong to, where they do not say so themselves."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one."
)
@click.option("--device", help="As torch names it.  [default: the GPU where there is one, else cpu]")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Of the CPU.  [default: 1 for a small model, else torch's own]",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Most tokens of an answer where the request does not say.",
)
@click.option(
    "--side-by-side",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Most answers that are made at the same time.",
)
@click.option("--api-key-location", metavar="env::NAME", help="Ask clients for the key in this variable.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the address and the models as JSON.")
def serve(
    models: tuple[str, ...],
    names: tuple[str, ...],
    base: str | None,
    host: str,
    port: int,
    device: str | None,
    threads: int | None,
    max_new_tokens: int,
    side_by_side: int,
    api_key_location: str | None,
    runs_folder: Path,
    as_json: bool,
) -> None:
    """Serve models of this machine as an OpenAI-compatible API, until Ctrl-C.

    MODEL is a job's name, a folder with an adapter or a model, an id, or sample:tiny-base. Several adapters
    are served on one base, which is served too; a request chooses by model name. The address is printed once
    requests are taken.

    \b
    trajkit serve goto-sft
    trajkit serve goto-sft pickup-sft --name goto --name pickup --port 0
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.commands.served import wanted_models
    from trajkit.commands.services import api_key
    from trajkit.models.serving.served_models import served_models
    from trajkit.models.serving.server import serve as serve_model

    key = api_key(api_key_location)
    served = served_models(wanted_models(models, names, base, runs_folder))
    loaded = served.open(device=device)
    console.talk(f"loaded {', '.join(loaded.names)} on {loaded.voice(None).device}")
    if host not in _LOOPBACK and key is None:
        console.talk(f"note: whoever reaches {host} can use it; --api-key-location asks for a key")

    def announce(url: str) -> None:
        if as_json:
            console.result_json_line({"url": url, "models": list(loaded.names), "pid": os.getpid()})
        else:
            console.result(url)

    try:
        loaded.use_threads(threads)
        serve_model(
            loaded,
            host=host,
            port=port,
            max_new_tokens=max_new_tokens,
            side_by_side=side_by_side,
            api_key=key,
            on_ready=announce,
        )
    finally:
        loaded.close()
    console.talk("ended")
