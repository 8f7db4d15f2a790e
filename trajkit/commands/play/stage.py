"""The configuration with the prompts of local models, and whether it fits their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit.errors import RequestError

Actions = Callable[[], Sequence[str]]
"""The valid actions in the world that is played first; empty if any text is valid."""


class Stage(NamedTuple):
    """The configuration whose prompts are played."""

    config: Path
    """The file."""
    function: str
    """The function in it."""
    variants: tuple[str, ...]
    """The function's variants."""
    is_asked: bool = True
    """It was named, and not only found in `trajkit.toml` or in the local stack."""

    def have_same_prompts(self, *variants: str) -> bool:
        """Whether variants of the function have the same templates."""
        from trajkit.registry.toml_file import Configuration
        from trajkit.registry.variant import have_same_prompts

        return have_same_prompts(Configuration.read(self.config), self.function, *variants)

    def foreign(self, actions: Actions) -> tuple[str, ...]:
        """The actions that its function is made for, if none of them is one of the environment's."""
        from trajkit.rollouts.prompts.variant import listed_actions

        listed = listed_actions(self.config, self.function)
        possible = set(actions()) if listed else set()
        return () if not possible or possible & set(listed) else listed

    def refuse_foreign(self, env_id: str, actions: Actions) -> None:
        """Refuse prompts that are made for another environment.

        Raises:
            RequestError: They are.
        """
        if listed := self.foreign(actions):
            raise RequestError(
                f"the function {self.function!r} of {self.config} is not for {env_id}: it is about "
                f"{', '.join(map(repr, listed[:3]))} …, which are not actions there",
                hint="name another with --config or --function; NAME=MODEL plays without one too",
            )


def find_stage(config_file: Path | None, function: str | None) -> Stage | None:
    """The configuration: as named, else that of trajkit.toml, else that of the local stack; None for none.

    Raises:
        ConfigError: It cannot be read.
        RequestError: It has no such function.
    """
    from trajkit._core.settings import project
    from trajkit.rollouts.gateway.venue import Venue, choose_function
    from trajkit.stack.gateway_config import read_config
    from trajkit.stack.state import local_stack

    settings = project()
    path = config_file or (Path(settings.config) if settings.config else None)
    if path is None and (stack := local_stack()) is not None:
        path = stack.config_file
    if path is None:
        if function is not None:
            raise RequestError(f"no configuration for {function!r}", hint="--config tensorzero.toml")
        return None
    names = read_config(path)
    chosen = choose_function(Venue(str(path), names), function)
    return Stage(path, chosen, names.functions[chosen], config_file is not None or function is not None)


def first_actions(
    env_id: str, settings: Mapping[str, str], tasks: Sequence[str], seeds: str
) -> Sequence[str]:
    """The valid actions at the beginning of the first world.

    Raises:
        RequestError: There is no such environment, task or seed.
        RolloutError: The environment failed.
    """
    from trajkit._core.seeds import typed_seeds
    from trajkit.environments import typed_environment

    info = typed_environment(env_id, settings)
    if info.rule is not None:
        return info.rule.actions
    environment = info.make((*tasks, *info.tasks)[0])
    try:
        environment.reset(next(iter(typed_seeds(seeds))))
        return environment.legal_actions()
    finally:
        environment.close()
