"""TextWorldExpress (Jansen and Côté 2022): eight text games with training, development and test worlds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

from trajkit._core.lazy import need
from trajkit.environments.base import EnvironmentInfo, Result, Start
from trajkit.errors import RequestError, RolloutError, StackError

ENV_ID = "textworld"
GAMES = ("cookingworld", "twc", "coin", "mapreader", "arithmetic", "sorting", "simonsays", "peckingorder")
FOLDS = {"": "train", "-dev": "dev", "-test": "test"}
"""Suffix of a task and the fold that it stands for."""
TASKS = tuple(f"{game}{ending}" for ending in FOLDS for game in GAMES)

_MOST_SEED = 2**31 - 1
_HELP = "help"
_EXTRA = "textworld"
_HINT = (
    "install Java 17 or newer (`apt install default-jre-headless`, `brew install openjdk`),"
    " or name its folder in JAVA_HOME"
)
# a game is small and there are many processes: use little memory and start fast
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_END_S = 5.0


class TextWorld:
    """A game of TextWorldExpress in its own Java process.

    Any text is an action: an unknown one takes a step and changes nothing. An action is valid if the game
    lists it as available. The game's gold paths contain some actions that it does not list.

    Args:
        task: One of `TASKS`: the name of a game for its training worlds, with `-dev` or `-test` for others.
        max_steps: Step limit of an episode.
        **parameters: Integer parameters of the game, such as `numLocations` and `numIngredients` of
            cookingworld. Default: the game's own.

    Raises:
        RequestError: There is no such task or parameter.
        MissingExtra: textworld-express is not installed.
        StackError: Java is not installed or does not start.
    """

    env_id = ENV_ID

    def __init__(self, task: str, *, max_steps: int = 100, **parameters: int) -> None:
        if task not in TASKS:
            hint = f"games: {', '.join(GAMES)}; append -dev or -test for a game's other worlds"
            raise RequestError(f"no task {task!r} in {ENV_ID}", hint=hint)
        if max_steps < 1:
            raise RequestError(f"max_steps={max_steps} is below 1")
        self.task, self.max_steps = task, max_steps
        game, dash, _ = task.partition("-")
        self._game, self._fold = game, FOLDS[task.removeprefix(game)] if dash else FOLDS[""]
        self._parameters = ",".join(f"{name}={_whole(name, value)}" for name, value in parameters.items())
        self._jvm: Jvm | None = None
        self._jvm = self._begun_jvm()
        self._seed: int | None = None
        self._path: list[str] | None = None
        self._place: int | None = 0
        self._done: list[str] = []
        self._now: dict[str, Any] = {}
        self._is_over = True

    def reset(self, seed: int) -> Start:
        """Start the episode of this seed.

        Args:
            seed: An integer from 0 to 2**31 - 1. TextWorldExpress uses 0 to 999 for training, 10000 to
                10999 for development and 20000 to 20999 for tests.

        Raises:
            RequestError: The seed is outside this range.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MOST_SEED:
            raise RequestError(
                f"invalid seed {seed!r} of {ENV_ID}", hint=f"seeds are whole numbers from 0 to {_MOST_SEED}"
            )
        jvm = self._begun_jvm()
        self._now = jvm.begin(seed, self._fold)
        self._seed, self._path, self._place, self._done, self._is_over = seed, None, 0, [], False
        mission, observation = jvm.mission(), str(self._now["observation"])
        said = json.dumps([self._game, self._fold, jvm.properties(), mission, observation])
        return Start(mission, observation, hashlib.sha256(said.encode()).hexdigest())

    def step(self, text: str | None) -> Result:
        """Execute an action. Spaces around the text are removed; None is an empty text.

        `help` shows the goal again and counts as a step.

        Raises:
            RolloutError: The episode is over, none was started, or the Java process failed.
        """
        self._playing()
        action = (text or "").strip()
        is_valid = action in self._now["validActions"]
        score = float(self._now["score"])
        self._done.append(action)
        observation = self._act(action)
        terminated = bool(self._now["tasksuccess"] or self._now["taskfailure"])
        truncated = len(self._done) >= self.max_steps
        self._is_over = terminated or truncated
        reward = round(float(self._now["score"]) - score, 9)  # a difference of sums of tenths
        return Result(observation, reward, terminated, truncated, action, is_valid)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the available actions, sorted and unique. Any other text is an action, too."""
        return () if self._is_over else tuple(sorted(set(map(str, self._now["validActions"]))))

    def statistics(self) -> dict[str, float]:
        """Return `progression`, the score from 0 to 1, and `success`, 1 if the goal is reached, else 0."""
        score = min(max(float(self._now.get("score", 0.0)), 0.0), 1.0)
        return {"progression": score, "success": float(bool(self._now.get("tasksuccess")))}

    def expert_action(self) -> str:
        """Return the next action of the game's gold path.

        Actions of the path without an effect are left out. In twc and coin the path differs each time.

        Raises:
            RolloutError: The episode is over, or the agent left the path.
        """
        self._playing()
        if self._path is None:
            self._find_path()
        place = None if self._place is None or self._path is None else self._next_on(self._path, self._place)
        if self._path is None or place is None:
            raise RolloutError(
                f"the expert of {ENV_ID} has only one path, and step {len(self._done)} is not on it",
                hint="play it from the beginning: --policy expert, without slips",
            )
        return self._path[place]

    def close(self) -> None:
        """End the Java process; `reset` starts a new one."""
        if self._jvm is not None:
            self._jvm.close()
        self._jvm, self._is_over = None, True

    def _begun_jvm(self) -> Jvm:
        if self._jvm is None:
            self._jvm = Jvm(self._game, self._parameters)
        return self._jvm

    def _playing(self) -> Jvm:
        if self._seed is None:
            raise RolloutError("no episode was begun", hint="call reset with a seed first")
        if self._is_over or self._jvm is None:
            raise RolloutError("the episode is over", hint="reset begins another")
        return self._jvm

    def _act(self, action: str) -> str:
        """Execute an action and advance on the path."""
        jvm = self._playing()
        if self._path is not None and self._place is not None:
            place = self._next_on(self._path, self._place)
            is_on_path = place is not None and self._path[place] == action
            self._place = place + 1 if place is not None and is_on_path else None
        if action == _HELP:  # the game itself has no such action
            return jvm.mission()
        self._now = jvm.step(action)
        return str(self._now["observation"])

    def _next_on(self, path: list[str], place: int) -> int | None:
        """Return the index of the next action of the path that has an effect."""
        legal = self._now["validActions"]
        return next((at for at in range(place, len(path)) if path[at] in legal), None)

    def _find_path(self) -> None:
        """Return the gold path: create the world again with a path, and repeat the actions so far."""
        jvm = self._playing()
        assert self._seed is not None
        self._now = jvm.begin(self._seed, self._fold, with_path=True)
        self._path, self._place = jvm.path(), 0
        for action in self._done:
            self._act(action)


def _whole(name: str, value: object) -> int:
    """Check the value of a parameter; the game would read any other text as some number."""
    try:
        return int(str(value))
    except ValueError as error:
        raise RequestError(f"{name}={value!r} of {ENV_ID} is not a whole number") from error


INFO = EnvironmentInfo(env_id=ENV_ID, tasks=TASKS, rule=None, success="success >= 1", make=TextWorld)


class Jvm:
    """One Java process with one game in it.

    The games share static state, so two games in one process corrupt each other, even in sequence: every
    environment has its own process. It ends with this one, also when this one is killed.

    Args:
        game: Name of the game.
        parameters: Parameters in TextWorldExpress's form: `numLocations=3,includeDoors=0`.

    Raises:
        MissingExtra: textworld-express is not installed.
        StackError: Java is not installed or does not start.
        RequestError: The game does not have the parameters.
    """

    def __init__(self, game: str, parameters: str) -> None:
        need("textworld_express", extra=_EXTRA)
        self._owner = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the process; a pipe would fill up
        try:
            self._process = self._start()
        except BaseException:
            self._errors.close()
            raise
        # at the latest when Python ends
        self._end = weakref.finalize(self, _end, self._owner, self._process, self._errors)
        try:
            self._gateway = self._connect()
            self._end.detach()
            self._end = weakref.finalize(self, _end, self._owner, self._process, self._errors, self._gateway)
            self._game: Any = self._gateway.jvm.textworldexpress.runtime.PythonInterface()
            said = str(self._game.load(game, parameters)).strip()
        except BaseException:
            self.close()
            raise
        if said:
            self.close()
            raise RequestError(f"textworld: {game}: {said.removeprefix('ERROR: ')}")

    def begin(self, seed: int, fold: str, *, with_path: bool = False) -> dict[str, Any]:
        """Create a world. With `with_path`, it has a path to the goal, which takes ten times as long."""
        return self._answer("generateNewGameJSON", seed, fold, with_path)

    def step(self, text: str) -> dict[str, Any]:
        """Act."""
        return self._answer("stepJSON", text)

    def mission(self) -> str:
        """Return the goal as text."""
        return str(self._call("getTaskDescription"))

    def properties(self) -> str:
        """Return the properties of the world, including the seed, as JSON."""
        return str(self._call("getGenerationPropertiesJSON"))

    def path(self) -> list[str]:
        """Return the path to the goal, if the world was created with one."""
        return [str(action) for action in self._call("getGoldActionSequence")]

    def close(self) -> None:
        """End the process. A second call does nothing, and neither does a call in a forked process."""
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        import py4j.java_gateway
        import textworld_express

        folder = Path(textworld_express.__file__).parent
        jars = [py4j.java_gateway.find_jar_path(), str(folder / "textworld-express.jar")]
        gateway = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        try:
            return subprocess.Popen(
                [_java(), *_OPTIONS, "-classpath", os.pathsep.join(jars), *gateway],
                cwd=folder,  # it reads files there
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C must not reach it: the current episode may still be finished
            )
        except OSError as error:
            raise StackError(f"{_java()} does not start: {error}", hint=_HINT) from error

    def _connect(self) -> Any:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        token = self._process.stdout.readline().strip().decode()
        if not port.isdigit() or not token:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            shown = next((line for line in said if "Error" in line), said[-1] if said else "no output")
            if "UnsupportedClassVersionError" in shown:
                raise StackError(f"{_java()} is too old for TextWorldExpress: {shown[:300]}", hint=_HINT)
            raise StackError(f"{_java()} does not start: {shown[:300]}", hint=_HINT)
        return JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token))

    def _answer(self, name: str, *arguments: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._call(name, *arguments))
        return found

    def _call(self, name: str, *arguments: object) -> Any:
        from py4j.protocol import Py4JError

        if self._owner != os.getpid():
            raise RolloutError(
                "this environment was started in another process", hint="create environments after the fork"
            )
        try:
            return getattr(self._game, name)(*arguments)
        except (Py4JError, OSError) as error:  # the process ended or the game failed
            raise RolloutError(f"the game's Java process failed: {str(error).splitlines()[0]}") from error


def _end(owner: int, process: subprocess.Popen[bytes], errors: IO[bytes], gateway: Any = None) -> None:
    """End a process, if this process started it."""
    if owner != os.getpid():
        return
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.close()
        # otherwise py4j reports each collected object to the ended process and logs the failure
        gateway._gateway_client.is_connected = False
    for pipe in (process.stdin, process.stdout, errors):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()  # the process ends when its input is closed
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=None if not home else str(Path(home) / "bin"))
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        raise StackError(f"TextWorldExpress needs Java, and there is none {where}", hint=_HINT)
    return found
