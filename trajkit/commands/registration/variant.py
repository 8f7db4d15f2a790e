"""A variant to register: planned, checked by the gateway, and written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trajkit
from trajkit._core.settings import STATE_FOLDER, project
from trajkit.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from trajkit.commands.registration.candidate import Candidate
    from trajkit.registry.change import Configuration as Files
    from trajkit.registry.ledger import Ledger, Registration
    from trajkit.registry.toml_file import Configuration

CONFIG = "tensorzero.toml"


class Planned(NamedTuple):
    """A variant that can be written."""

    found: Candidate
    """The model."""
    pattern: str
    """The configuration's file, or a pattern of several."""
    before: Files
    """As it is."""
    after: Files
    """As it would be."""
    names: dict[str, str | None]
    """Function, template and name of the variant; the name alone if a gateway has no functions."""
    diff: list[str]
    """The change, line by line."""
    notes: tuple[str, ...]
    """What a user should know."""
    placeholders: tuple[str, ...]
    """Variables that need placeholder values, so that the gateway loads it."""
    verdict: str = "the gateway loads it"
    """Whether the gateway has loaded it."""

    @property
    def title(self) -> str:
        """Function and variant, or the name alone."""
        return "/".join(filter(None, (self.names["function"], self.names["variant"])))


def plan(found: Candidate, asked: Mapping[str, Any]) -> Planned:
    """What registering would change; the gateway has loaded it.

    Raises:
        RequestError: The configuration, the function or the template is not clear.
        ConfigError: The gateway would not load it.
    """
    from trajkit.registry import change
    from trajkit.registry.toml_file import Configuration
    from trajkit.registry.variant import register as add

    pattern = known_config(asked["config"])
    if pattern is None:
        raise RequestError("no configuration given", hint=f"--config {CONFIG}, or `config` in trajkit.toml")
    if is_of_proxy(pattern):
        return _plan_of_proxy(found, pattern, asked)
    before = Configuration.read(pattern)
    names = names_of(found, before, asked)
    made = add(before, model=found.model, traffic=asked["traffic"], **names)
    change.check_writable(before, made.configuration)
    diff = change.diff(before, made.configuration)
    placeholders = _loaded(before, made.configuration) if diff else ()
    notes = (*made.notes, *found.notes)
    return Planned(found, pattern, before, made.configuration, {**names}, diff, notes, placeholders)


def is_of_proxy(config: str | None) -> bool:
    """Whether a configuration is one of the LiteLLM proxy, by its suffix."""
    from trajkit.registry.proxy_config import SUFFIXES

    return config is not None and config.endswith(SUFFIXES)


def _plan_of_proxy(found: Candidate, path: str, asked: Mapping[str, Any]) -> Planned:
    """What registering with the LiteLLM proxy would change; the proxy has served it if it is installed."""
    from trajkit.registry import change
    from trajkit.registry.proxy_check import PROGRAM, check_serves, find_program
    from trajkit.registry.proxy_config import ProxyConfig, add_model

    before = ProxyConfig.read(path)
    default = found.tuned.job_id or found.tuned.name.rpartition("::")[2]
    alias = asked["variant"] or asked["name"] or default
    made = add_model(before, found.model, alias)
    change.check_writable(before, made.configuration)
    diff = change.diff(before, made.configuration)
    program, verdict = find_program(), "the proxy serves it"
    placeholders: tuple[str, ...] = ()
    if program is None:
        verdict = f"{PROGRAM} is not on the PATH: the text was checked, and the proxy has not loaded it"
    elif diff:
        placeholders = check_serves(made.configuration, program)
    names = {"function": None, "template_variant": None, "variant": alias}
    notes = (*made.notes, *found.notes)
    return Planned(found, path, before, made.configuration, names, diff, notes, placeholders, verdict)


def written_down(planned: Planned, ledger: Ledger) -> Registration | None:
    """Write the change and record it; None if nothing changes and the ledger has it.

    A variant that was written by hand, or that another ledger has, is recorded, so that `lineage` finds it.
    """
    if not planned.diff and any(_is_same(each, planned) for each in ledger.standing()):
        return None
    return _write(planned, ledger)


def known_config(asked: str | None) -> str | None:
    """The requested configuration, else that of `trajkit.toml`, else the one in this folder."""
    return asked or project().config or (CONFIG if Path(CONFIG).is_file() else None)


def names_of(found: Candidate, before: Configuration, asked: Mapping[str, Any]) -> dict[str, str]:
    """Function, template and name of the new variant: as requested, else those of the learned steps."""
    function = asked["function"] or found.function
    if function is None:
        known = found.functions or tuple(before.get("functions") or ())
        of = "the learned steps are of" if found.functions else "the configuration has"
        raise RequestError("no --function given", hint=f"--function NAME; {of} {', '.join(known) or 'none'}")
    template = asked["template_variant"] or (found.variants[0] if len(found.variants) == 1 else None)
    if template is None:
        from trajkit.registry.variant import variants_of

        known = found.variants or tuple(variants_of(before, function))
        of = "the learned steps are of" if found.variants else "the function has"
        raise RequestError(
            "no template variant given", hint=f"--template-variant NAME; {of} {', '.join(known) or 'none'}"
        )
    variant = asked["variant"] or f"{template}_{found.tuned.method or 'tuned'}"
    return {"function": function, "template_variant": template, "variant": variant}


def _loaded(before: Configuration, after: Configuration) -> tuple[str, ...]:
    """Let the gateway load it; return the placeholders that it needed."""
    from trajkit.registry.check import check_loads

    try:
        return check_loads(after)
    except ConfigError as refused:
        try:
            check_loads(before)
        except ConfigError as old:
            if old.message == refused.message:
                hint = "it refuses the current one, too: fix that first; nothing was changed"
                raise ConfigError(old.message, hint=hint) from refused
        raise


def _write(planned: Planned, ledger: Ledger) -> Registration:
    from trajkit.registry import change
    from trajkit.registry.ledger import Registration

    now = datetime.now(UTC)
    registration_id = f"{now:%Y%m%dT%H%M%S%f}-{planned.names['variant']}"
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in registration_id)
    files = change.write(planned.before, planned.after, STATE_FOLDER / "backups" / safe)
    registration = Registration(
        registration_id=registration_id,
        model=planned.found.tuned,
        **{name: value for name, value in planned.names.items() if value is not None},
        config=str(Path(planned.pattern).absolute()),
        files=files,
        registered_at=now,
        trajkit_version=trajkit.__version__,
    )
    ledger.add(registration)
    return registration


def _is_same(known: Registration, planned: Planned) -> bool:
    """Whether the ledger has this registration."""
    of = {"function": known.function, "template_variant": known.template_variant, "variant": known.variant}
    is_here = known.config == str(Path(planned.pattern).absolute())
    return of == planned.names and is_here and known.model.name == planned.found.tuned.name
