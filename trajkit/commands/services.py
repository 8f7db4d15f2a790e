"""Local services: start, show and stop those of the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trajkit.commands.place import Many, Place, many
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.stack.local import Down, Serves
    from trajkit.stack.state import LocalStack


def up(
    *,
    config: Place | None = None,
    data: Place | None = None,
    mistakes: float = 0.2,
    model: str | None = None,
    serve: Many = (),
    runs: Place = "runs",
) -> LocalStack:
    """Start the local services: ClickHouse with TensorZero's tables, and a stand-in model.

    What runs already is left alone. `trajkit.down()` stops them.

    Args:
        config: The gateway's `tensorzero.toml`; None for that of trajkit.toml, else the recipe for BabyAI.
        data: Folder of the database.
        mistakes: Share of the stand-in's answers that are wrong on purpose.
        model: A real model instead of the stand-in, such as `openai::gpt-4.1-mini`.
        serve: Models of this machine instead: MODEL, or MODEL=NAME.
        runs: The folder where jobs are kept.

    Raises:
        RequestError: Both `model` and `serve` are given.
        ConfigError: The configuration cannot be used.
        StackError: A service did not start.
    """
    return start(config, data, mistakes, model, many(serve), Path(runs))


def start(
    config: Place | None,
    data: Place | None,
    mistakes: float,
    model: str | None,
    served: tuple[str, ...],
    runs_folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> LocalStack:
    """Start what `up` starts, and say how far that is."""
    from trajkit._core.settings import project
    from trajkit.stack.local import recipe_config, start_stack

    settings = project()
    source = Path(config or settings.config or recipe_config())
    if served and model:
        raise RequestError("--model and --serve both say what answers", hint="leave one out")
    serves = _serves(served, runs_folder)
    return start_stack(
        source,
        data_folder=None if data is None else Path(data),
        mistakes=mistakes,
        model=None if serves else model or settings.model,
        serves=serves,
        say=say,
    )


def _serves(models: tuple[str, ...], runs_folder: Path) -> Serves | None:
    """What the model server is to load; None for the stand-in."""
    from trajkit.commands.served import wanted_models
    from trajkit.models.serving.served_models import served_models
    from trajkit.stack.local import Serves

    if not models:
        return None
    pairs = [_model_and_name(each) for each in models]
    wanted = wanted_models([model for model, _ in pairs], [name for _, name in pairs], None, runs_folder)
    served = served_models(wanted)
    named = tuple(each.name for each in wanted)
    return Serves(served.arguments(named), named)


def _model_and_name(text: str) -> tuple[str, str | None]:
    model, _, name = text.rpartition("=")
    return (text, None) if not model or Path(text).exists() else (model, name)


class Status(NamedTuple):
    """The local services of the folder."""

    stack: LocalStack | None
    """What was started here; None for nothing."""
    is_up: bool
    """Whether the database runs."""
    rows: dict[str, int]
    """Rows of its main tables."""


def status() -> Status:
    """Show the local services: where they are, whether they run, and the rows in the main tables."""
    from trajkit.stack.local import row_counts
    from trajkit.stack.state import read_state

    state = read_state()
    is_up = state is not None and state.clickhouse.is_running
    return Status(state, is_up, row_counts(state) if state is not None and is_up else {})


def down(*, delete_data: bool = False) -> Down:
    """Stop the local services.

    Args:
        delete_data: Delete the database too. There is no way back.
    """
    from trajkit.stack.local import stop_stack

    return stop_stack(with_data=delete_data)
