"""`trajkit pull`: a dataset of the Hugging Face Hub as a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.derived import print_entry

if TYPE_CHECKING:
    from trajkit.publishing.pull import Pulled


@click.command()
@click.argument("repository", metavar="ORG/NAME[@REVISION]")
@click.option(
    "-o",
    "--output",
    "goal",
    type=click.Path(path_type=Path),
    required=True,
    help="The store to write; a folder with a store per split where there are several.",
)
@click.option("--split", "splits", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--config", "configuration", metavar="NAME", help="Of a dataset of others: which part of it.")
@click.option(
    "--from", "from_", metavar="FORMAT", help="Of a dataset of others: what it holds, as in import."
)
@click.option("--skip-bad", is_flag=True, help="Of a dataset of others: leave out what cannot be read.")
@click.option(
    "--success", metavar="RULE", help="Of a dataset of others: when an episode is a success, as in import."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def pull(
    repository: str,
    goal: Path,
    splits: tuple[str, ...],
    configuration: str | None,
    from_: str | None,
    skip_bad: bool,
    success: str | None,
    as_json: bool,
) -> None:
    """Read a dataset from the Hugging Face Hub.

    What `trajkit push` put there comes back with the same digest. Of others, conversations (messages, prompt
    and completion, ShareGPT) and session traces are imported. A private dataset needs HF_TOKEN.

    \b
    trajkit pull me/goto@v1 -o stores/goto
    trajkit pull org/chats --config default --split train -o stores/chats
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit._core.settings import remember
    from trajkit.publishing.hub import Hub, found_token
    from trajkit.publishing.pull import pull as read
    from trajkit.sources.files.importing import Wish

    name, _, revision = repository.partition("@")
    with console.Meter() as meter:
        pulled = read(
            Hub(found_token()),
            name,
            goal,
            revision=revision or None,
            configuration=configuration,
            splits=splits,
            wish=Wish(format=from_, skip_bad=skip_bad, success=success),
            on_progress=meter.show,
        )
    remember("last_store", {"path": str(pulled.stores[0].path.absolute())})
    if as_json:
        console.result_json(pulled.model_dump(mode="json"))
        return
    _print(pulled)


def _print(pulled: Pulled) -> None:
    console.talk(f"{pulled.repository} at {pulled.commit[:12]}")
    if pulled.imported is not None and pulled.entry is not None:
        console.talk(f"read as {pulled.imported.format}")
        for problem in pulled.imported.problems:
            console.talk(f"left out: {problem}")
        print_entry(pulled.entry)
    for store in pulled.stores:
        kept = f"{console.plural(store.n_episodes, 'episode')}  {console.plural(store.n_steps, 'step')}"
        console.result(f"{store.path}  {kept}  digest {store.digest[:12]}")
