"""Load a user's scorer by name, identify it by its source, and call it safely."""

from __future__ import annotations

import importlib.util
import inspect
import math
import numbers
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import sha256_file
from trajkit.environments.guard import is_numpy_flag, raised
from trajkit.environments.module import attribute
from trajkit.environments.quiet import quiet
from trajkit.errors import RequestError
from trajkit.schema import Episode, Message, Transition

Score = bool | float | None
"""Value of a scorer; None for no score."""


_OF_FILE = "trajkit_scorer_"
"""Prefix of the name of the module that is made from a file."""


class Unusable(Exception):
    """A scorer returned no score; the message says what happened instead."""


class Identity(NamedTuple):
    """Identity of the code that scored."""

    spec: str
    """As the user wrote it."""
    sha256: str | None
    """Hash of its source file; None without one, as for a builtin."""
    version: str | None
    """Version of the code, else of its package; None if neither has one."""


class Scorer:
    """Scores episodes, or the steps of one.

    A function of steps takes the step; or the step and its episode; or the messages of the prompt, the answer
    and the step. The same function scores the answers of other models to that prompt (`answer`).

    Args:
        spec: `my.py:fn`, a local file, or `my_pkg.module:fn`.
        per_step: Score each step instead of the episode.

    Raises:
        RequestError: The function does not exist, or cannot be called with an episode (or a step).
    """

    def __init__(self, spec: str, *, per_step: bool) -> None:
        self._found: Callable[..., Any] = _found(spec)
        self._is_class = isinstance(self._found, type)
        self._function: Callable[..., Any] | None = None
        self._making = threading.Lock()
        self._n_taken = _n_positional(self._found, spec, most=3 if per_step else 1)
        self.identity = Identity(spec, _source_sha256(self._found), _version(self._found))

    def episode(self, episode: Episode) -> Score:
        """Return the score of an episode.

        Raises:
            Unusable: The scorer raised, or returned something that is not a score.
        """
        return self._called(episode)

    def step(self, step: Transition, episode: Episode) -> Score:
        """Return the score of one step.

        Raises:
            Unusable: The scorer raised, or returned something that is not a score.
        """
        if self._n_taken < 3:
            return self._called(*(step, episode)[: self._n_taken])
        if step.completion is None:
            return None
        return self._called(episode.prompt(step.step_index) or (), step.completion, step)

    def answer(self, prompt: Sequence[Message], answer: Message, step: Transition, episode: Episode) -> Score:
        """Return the score of a model's answer to the prompt of a logged step. Threads may call it.

        Args:
            prompt: The messages of the prompt.
            answer: The model's answer.
            step: The logged step. A function of a step gets it with the model's answer as its completion.
            episode: The logged episode.

        Raises:
            Unusable: The scorer raised, or returned something that is not a score.
        """
        if self._n_taken == 3:
            return self._called(tuple(prompt), answer, step)
        answered = step.model_copy(update={"completion": answer})
        return self._called(*(answered, episode)[: self._n_taken])

    def _called(self, *arguments: Any) -> Score:
        try:
            with quiet():
                with self._making:
                    if self._function is None:  # a class is made at its first use: it may load a model
                        self._function = self._found() if self._is_class else self._found
                value = self._function(*arguments)
        except (Exception, SystemExit) as error:
            raise Unusable(f"raised {raised(error)}") from error
        return _score(value)


def _score(value: Any) -> Score:
    """Return a value as a number, a boolean or None; numpy's types are converted."""
    if value is None or isinstance(value, bool):
        return value
    if is_numpy_flag(value):
        return bool(value)
    if inspect.iscoroutine(value):
        value.close()
        raise Unusable("gave a coroutine: a scorer is synchronous, write def, not async def")
    if not isinstance(value, numbers.Real):
        raise Unusable(f"gave {type(value).__name__}, not a number, True, False or None")
    number = float(value)
    if not math.isfinite(number):
        raise Unusable(f"gave {number}")
    return number


def _found(spec: str) -> Callable[..., Any]:
    path, colon, name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        found: Any = _of_file(Path(path), name)
    else:
        found = attribute(spec, noun="scorer")
    if not callable(found):
        raise RequestError(f"{spec} is {type(found).__name__}, not a function")
    if isinstance(found, type) and not any("__call__" in vars(base) for base in found.__mro__):
        raise RequestError(f"an instance of {spec} cannot be called", hint="def __call__(self, episode)")
    return found  # type: ignore[no-any-return]


def _of_file(path: Path, name: str) -> Any:
    """Return an attribute of a file's module; modules beside the file can be imported."""
    if not path.is_file():
        raise RequestError(f"there is no file {path}", hint=f"looked in {Path.cwd()}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = _OF_FILE + path.stem
    specification = importlib.util.spec_from_file_location(module_name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up there
    try:
        with quiet():
            specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RequestError(f"{path} cannot be imported: {raised(error)}") from error
    if not hasattr(module, name):
        named = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise RequestError(f"{path} has no {name!r}", hint=f"it has {', '.join(named) or 'no function'}")
    return getattr(module, name)


def _n_positional(function: Callable[..., Any], spec: str, *, most: int) -> int:
    """Return how many arguments to pass, up to `most`."""
    try:
        if isinstance(function, type):  # its instance is called
            known = list(inspect.signature(function.__call__).parameters.values())[1:]
        else:
            known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin without a signature
    places = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in places) + sum(
        p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in known
    )
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in known)
    if not (places or takes_any) or needed > most:
        wanted = "an episode" if most == 1 else "a step, a step and its episode, or prompt, answer and step"
        raise RequestError(
            f"{spec} takes {needed} arguments and is given {wanted}",
            hint="def fn(episode)"
            if most == 1
            else "def fn(step), fn(step, episode) or fn(prompt, answer, step)",
        )
    return min(2, most) if takes_any else min(most, max(1, needed))


def _source_sha256(function: Callable[..., Any]) -> str | None:
    try:
        source = inspect.getsourcefile(inspect.unwrap(_code_of(function)))
    except TypeError:
        return None
    return sha256_file(Path(source)) if source and Path(source).is_file() else None


def _code_of(function: Callable[..., Any]) -> Any:
    """Return the object that has source code: a function itself, or an instance's class."""
    return function if inspect.isroutine(function) or isinstance(function, type) else type(function)


def _version(function: Callable[..., Any]) -> str | None:
    module = inspect.getmodule(_code_of(function))
    for owner, name in ((function, "version"), (function, "__version__"), (module, "__version__")):
        found = getattr(owner, name, None)
        if isinstance(found, str):
            return found
    top = (module.__name__ if module else "").partition(".")[0]
    if not top or top.startswith(_OF_FILE):
        return None
    try:
        return version(packages_distributions().get(top, [""])[0])
    except (PackageNotFoundError, ValueError):
        return None
