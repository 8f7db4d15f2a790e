"""Read a dataset from the Hugging Face Hub into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output.console import Meter, talk
from trajkit.commands.options.types import Many, NewFolder, Option, many
from trajkit.commands.place import remember_store

if TYPE_CHECKING:
    from trajkit.publishing.pull import Pulled


def pull(
    repository: Annotated[str, Option(metavar="ORG/NAME[@REVISION]")],
    *,
    output: NewFolder,
    split: Annotated[Many, Option(metavar="NAME")] = (),
    config: Annotated[str | None, Option(metavar="NAME")] = None,
    from_: Annotated[str | None, Option(metavar="FORMAT")] = None,
    skip_bad: bool = False,
    success: Annotated[str | None, Option(metavar="RULE")] = None,
) -> Pulled:
    """Read a dataset from the Hugging Face Hub.

    A dataset that `trajkit push` published comes back with the same digest. From other datasets,
    conversations (messages, prompt and completion, ShareGPT) and session traces are imported. A private
    dataset needs HF_TOKEN.

    Args:
        repository: The dataset, with a commit, a branch or a tag after an @.
        output: The store to write; a folder with a store per split if there are several.
        split: Only this split; may be repeated.
        config: For a dataset that trajkit did not publish: its configuration.
        from_: For a dataset that trajkit did not publish: its format, as in import.
        skip_bad: For a dataset that trajkit did not publish: leave out unreadable rows.
        success: For a dataset that trajkit did not publish: when an episode is a success, as in import.

    Raises:
        ServiceError: The Hub has no such dataset, or denies access to it.
        DataError: It cannot be read.
        StoreError: `output` exists.

    Example:
        trajkit pull me/goto@v1 -o stores/goto
        trajkit pull org/chats --config default --split train -o stores/chats
    """
    from trajkit.publishing.hub import Hub, found_token
    from trajkit.publishing.pull import pull as read
    from trajkit.sources.files.importing import Wish

    name, _, revision = repository.partition("@")
    with Meter() as meter:
        pulled = read(
            Hub(found_token()),
            name,
            Path(output),
            revision=revision or None,
            configuration=config,
            splits=many(split),
            wish=Wish(format=from_, skip_bad=skip_bad, success=success),
            on_progress=meter.show,
        )
    remember_store(pulled.stores[0].path)
    talk(f"{pulled.repository} at {pulled.commit[:12]}")
    if pulled.imported is not None:
        talk(f"read as {pulled.imported.format}")
        for problem in pulled.imported.problems:
            talk(f"left out: {problem}")
    return pulled
