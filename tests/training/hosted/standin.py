"""What stand-ins of services have in common: routes, jobs that go on with every look, refusals on demand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.training.hosted.loopback import Loopback, Reply, Request


class StandIn(Loopback):
    """A service as far as a fine-tuning needs it.

    Args:
        routes: Method, pattern of the path, and the name of the method here that answers.
        key: Without it nothing is answered.
        life: The states of a job, one further with every look.
    """

    def __init__(self, routes: Sequence[tuple[str, str, str]], *, key: str, life: tuple[str, ...]) -> None:
        super().__init__(self._answer)
        self._routes, self._key, self._life = routes, key, life
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.requests.clear()
        self.mangle = lambda call, answer: answer
        self.contents: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.life = self._life
        """The states of a job, one further with every look."""
        self.why = "row 3 has no assistant message"
        """What is said of a job that fails."""
        self.refuse: dict[str, Reply] = {}
        """By `METHOD /path`, what is answered instead."""
        self.refuse_once: dict[str, Reply] = {}
        """The same, the next time alone."""
        self.hang_up_after_create = False
        self._ages: dict[str, int] = {}

    def _answer(self, request: Request) -> Reply:
        instead = self.refuse_once.pop(str(request), None) or self.refuse.get(str(request))
        if instead is not None:
            return instead
        if request.path.startswith("/storage/"):
            assert request.key is None, "a key was sent to storage"
            return self._store(request)
        if request.key != self._key:
            return self._bad_key(request.key)
        for method, pattern, name in self._routes:
            if method == request.method and (found := re.fullmatch(pattern, request.path)):
                reply = getattr(self, name)(request, *found.groups())
                return reply if isinstance(reply, Reply) else Reply(reply)
        return self._missing(request.path)

    def _older(self, job_id: str) -> str:
        """The next state of a job's life."""
        self._ages[job_id] = min(self._ages[job_id] + 1, len(self.life) - 1)
        return self.life[self._ages[job_id]]

    def _store(self, request: Request) -> Reply:
        raise AssertionError("nothing is kept here")

    def _bad_key(self, key: str | None) -> Reply:
        raise AssertionError("any key will do")

    def _missing(self, what: str) -> Reply:
        return Reply(None, 404)
