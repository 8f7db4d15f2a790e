"""Stop the local services of the working folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajkit._core.output.console import talk

if TYPE_CHECKING:
    from trajkit.stack.local import Down


def down(*, delete_data: bool = False) -> Down:
    """Stop the local services. Their data is kept, unless --delete-data.

    A process is signalled only if its id and start time are those that `up` recorded.

    Args:
        delete_data: Also delete the database. This cannot be undone.

    Raises:
        StackError: The state file cannot be read, or does not name a database that runs on the data.
    """
    from trajkit.stack.local import stop_stack

    stopped = stop_stack(with_data=delete_data)
    if not stopped.services:
        talk("nothing was running in this folder")
    return stopped
