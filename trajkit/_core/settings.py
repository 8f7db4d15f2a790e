"""Read settings of the working folder and the environment: `trajkit.toml`, `.trajkit/`, services' names.

Seeds that are reserved for evaluation hold for a whole project: every folder upward is searched for them.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    ValidationError,
)

from trajkit._core.files import write_json
from trajkit._core.outside import problem_of
from trajkit._core.seeds import Seeds, as_seeds
from trajkit.errors import ConfigError, RequestError, TrajkitError

STATE_FOLDER = Path(".trajkit")
"""Folder of what commands remember between runs, in the working folder."""

PROJECT_FILE = "trajkit.toml"
"""Defaults of a folder, and the seeds that its project reserves for evaluation."""


def _typed_seeds(value: object) -> Seeds:
    if not isinstance(value, str | Seeds):
        raise ValueError("seeds are written as text, such as '200:220'")
    try:
        return as_seeds(value)
    except TrajkitError as error:
        raise ValueError(error.message) from error


class Reservation(BaseModel):
    """Worlds that are reserved for evaluation: one `[[reserved]]` table of a `trajkit.toml`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,  # a mistyped value may be a password
    )

    env: Annotated[str, Field(min_length=1)]
    """The environment, as in the tag `trajkit.env`."""
    tasks: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """Its tasks, by name."""
    seeds: Annotated[Seeds, PlainValidator(_typed_seeds), PlainSerializer(str, return_type=str)]
    """Their seeds, half-open: `200:220` is 200 to 219."""
    states: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """`initial_state_hash` of these worlds, so that a world is also recognised under another seed or name."""

    def __str__(self) -> str:
        return f"{self.env} {', '.join(self.tasks)} seeds {self.seeds}"


class Project(BaseModel):
    """Defaults for a working folder, from its `trajkit.toml`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )

    source: str | None = None
    """The source of `export`: a database URL or a store."""
    config: str | None = None
    """The gateway's `tensorzero.toml`."""
    function: str | None = None
    """The gateway's function to play and to export."""
    stores: str = "stores"
    """Folder for stores when no -o is given."""
    model: str | None = None
    """Model that the variants use instead of the local stand-in, such as `openai::gpt-4.1-mini`. Also the
    model to tune at its service when no other is named."""
    input_price: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million tokens of prompts, for `rollout`."""
    output_price: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million tokens of answers, for `rollout`."""
    reserved: tuple[Reservation, ...] = ()
    """Worlds that are reserved for evaluation; those of the folders above hold, too."""


def project(folder: Path | None = None) -> Project:
    """Read the working folder's `trajkit.toml`; all defaults when there is none.

    Raises:
        ConfigError: The file is not TOML, has an unknown key, or a value of the wrong type.
    """
    return _read_project((folder or Path()) / PROJECT_FILE)


def project_files(folder: Path | None = None) -> list[Path]:
    """Return every `trajkit.toml` from the working folder upward, the nearest first."""
    here = (folder or Path()).absolute()
    return [path for one in (here, *here.parents) if (path := one / PROJECT_FILE).exists()]


def reserved(folder: Path | None = None) -> tuple[Reservation, ...]:
    """Return the worlds that the project reserves for evaluation: those of every `trajkit.toml` upward.

    Raises:
        ConfigError: One of the files cannot be used.
    """
    return tuple(each for path in project_files(folder) for each in _read_project(path).reserved)


def refuse_reserved(
    env_id: str, tasks: Iterable[str], seeds: Seeds | str, *, folder: Path | None = None
) -> None:
    """Refuse to train on worlds that are reserved for evaluation.

    Args:
        env_id: The environment, as in the tag `trajkit.env`.
        tasks: Its tasks to play or learn.
        seeds: Their seeds.
        folder: Where to look from; None for the working folder.

    Raises:
        RequestError: One of them is reserved; the message names it.
        ConfigError: A `trajkit.toml` cannot be used.
    """
    wanted, chosen = tuple(tasks), as_seeds(seeds)
    for path in project_files(folder):
        for each in _read_project(path).reserved:
            both = [task for task in wanted if task in each.tasks] if each.env == env_id else []
            seed = chosen.first_shared(each.seeds) if both else None
            if seed is not None:
                raise RequestError(
                    f"seed {seed} of {env_id} {both[0]} is reserved for evaluation in {path}",
                    hint=f"reserved: {each.seeds}; choose other seeds, or play with --purpose eval",
                )


def _read_project(path: Path) -> Project:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Project()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return Project.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        known = Reservation if first["loc"][0] == "reserved" and len(first["loc"]) > 1 else Project
        raise ConfigError(
            f"{path}: {problem_of(error)}",
            hint=f"known keys: {', '.join(sorted(known.model_fields))}",
        ) from error


def secret_from_environment(name: str) -> SecretStr | None:
    """Read a password, a key or a URL with one from an environment variable.

    Returns:
        The value without spaces and newlines around it; None when it is unset or blank.

    Raises:
        ConfigError: A character in it cannot be sent in an HTTP header. The message does not hold the value.
    """
    return checked_secret(os.environ.get(name, ""), name)


def checked_secret(value: str, name: str) -> SecretStr | None:
    """Strip a secret and refuse one that cannot be sent.

    Args:
        value: The secret as it was found.
        name: Where it was found, for messages.

    Returns:
        None when it is blank.

    Raises:
        ConfigError: A character in it cannot be sent in an HTTP header. The message does not hold the value.
    """
    value = value.strip()
    is_url = "://" in value  # its password may hold letters of any alphabet
    unfit = next(
        (at for at, each in enumerate(value) if not ("!" <= each <= "~" or (is_url and each.isprintable()))),
        None,
    )
    if unfit is not None:
        raise ConfigError(
            f"{name} has a character that no key has, at position {unfit + 1} of {len(value)}",
            hint="a space, a line break or a typographic character was probably copied with it",
        )
    return SecretStr(value) if value else None


def remember(name: str, value: Any, *, folder: Path | None = None) -> None:
    """Keep a value for later commands in this folder, such as the last store."""
    write_json((folder or Path()) / STATE_FOLDER / f"{name}.json", value, mode=0o600)


def remembered(name: str, *, folder: Path | None = None) -> Any:
    """Return the value that `remember` kept; None when there is none, or it cannot be read."""
    path = (folder or Path()) / STATE_FOLDER / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
