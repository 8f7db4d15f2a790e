"""Start the local services of the working folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit._core.output.console import talk
from trajkit._core.settings import project
from trajkit.commands.options.types import File, Many, Option, Place, RunsFolder, many
from trajkit.commands.place import path_or_none
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.stack.local import Serves
    from trajkit.stack.state import LocalStack


def up(
    *,
    config: File = None,
    data: Annotated[Place | None, Option(metavar="FOLDER")] = None,
    mistakes: Annotated[float, Option(least=0, most=1)] = 0.2,
    model: str | None = None,
    serve: Annotated[Many, Option(metavar="MODEL[=NAME]")] = (),
    runs: RunsFolder = "runs",
) -> LocalStack:
    """Start the local services: ClickHouse with TensorZero's tables, and a stand-in model.

    The stand-in is a rule player, not a language model: it needs no key and no network. --model puts a real
    model in its place, and --serve local ones, behind `trajkit serve`: variants of the stand-in call the
    first, and models at the stand-in's address whose `model_name` is a NAME call that one.

    There is no gateway process: the gateway of TensorZero 2026.6.0 for Python runs inside the process that
    uses it and serves no TensorZero HTTP API, so every command that plays opens its own on this database. To
    use a gateway that runs elsewhere, set TENSORZERO_GATEWAY_URL; for a database elsewhere, set
    TENSORZERO_CLICKHOUSE_URL. Neither needs `trajkit up`.

    The ports are on 127.0.0.1 only. What runs, and where, is kept in .trajkit/stack.json. A second `up`
    starts what has died, on the same data, and reads the configuration again.

    Args:
        config: The gateway's tensorzero.toml. Default: `config` in trajkit.toml, else the recipe for BabyAI.
        data: Folder of the database. Default: .trajkit/stack/clickhouse.
        mistakes: Share of the stand-in's answers that are wrong on purpose.
        model: A real model instead of the stand-in, such as openai::gpt-4.1-mini; its key must be set.
        serve: A local model instead: a job, a folder, an id, sample:tiny-base. If repeated: by NAME.
        runs: Folder where jobs are kept.

    Raises:
        RequestError: Both `model` and `serve` are given.
        ConfigError: The configuration cannot be used.
        StackError: A service did not start.
    """
    from trajkit.stack.local import recipe_config, start_stack
    from trajkit.stack.state import local_stack

    settings, before = project(), local_stack()
    if serve and model:
        raise RequestError("--model and --serve exclude each other", hint="leave one out")
    serves = _serves(many(serve), Path(runs))
    state = start_stack(
        Path(config or settings.config or recipe_config()),
        data_folder=path_or_none(data),
        mistakes=mistakes,
        model=None if serves else model or settings.model,
        serves=serves,
        say=talk,
    )
    if before is not None and before.processes == state.processes:
        talk("it was running already; the configuration was read again")
    return state


def _serves(models: tuple[str, ...], runs_folder: Path) -> Serves | None:
    """What the model server loads; None for the stand-in."""
    from trajkit.commands.play.local_model import wanted_models
    from trajkit.models.serving.served_models import served_models
    from trajkit.stack.local import Serves

    if not models:
        return None
    pairs = [_model_and_name(each) for each in models]
    wanted = wanted_models([model for model, _ in pairs], [name for _, name in pairs], None, runs_folder)
    named = tuple(each.name for each in wanted)
    return Serves(served_models(wanted).arguments(named), named)


def _model_and_name(text: str) -> tuple[str, str | None]:
    model, _, name = text.rpartition("=")
    return (text, None) if not model or Path(text).exists() else (model, name)
