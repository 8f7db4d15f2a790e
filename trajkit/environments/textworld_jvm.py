"""A Java process with one game of TextWorldExpress.

The games share static state, so two games in one process disturb each other, even one after the other.
Therefore every environment has its own process. It ends with this process, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

from trajkit._core.lazy import need
from trajkit.errors import RequestError, RolloutError, StackError

_EXTRA = "textworld"
_HINT = (
    "install Java 17 or newer (`apt install default-jre-headless`, `brew install openjdk`),"
    " or name its folder in JAVA_HOME"
)
# a game is small and there are many processes: use little memory and start fast
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_END_S = 5.0


class Jvm:
    """A Java process with a game.

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
            shown = next((line for line in said if "Error" in line), said[-1] if said else "it said nothing")
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
                "this environment was begun in another process", hint="make environments after the fork"
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
        raise StackError(f"TextWorldExpress runs in Java, and there is none {where}", hint=_HINT)
    return found
