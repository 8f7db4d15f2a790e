"""Create a recorded client with the class, settings and connections of the user's own.

Where to record was a choice. A proxy around `chat.completions` and `responses` would have to follow every
method (create, parse, stream, raw and streaming responses, tool runners) and would not be an `OpenAI`. A
transport below the HTTP client would have to be put into the user's own HTTP client, which other clients may
share, and `with_options(http_client=...)` would lose it. So the recorded client is an object of a subclass
created for it, which overrides `_send_request`: the library sends each request and gets each response
through this method. There JSON is exactly as it is sent, copies (`with_options`) have the same class and are
recorded, too, and neither the user's client nor its class is changed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from trajkit._core.lazy import need
from trajkit.errors import RequestError
from trajkit.rollouts.recorder.running import RunningCall

if TYPE_CHECKING:
    from trajkit.rollouts.recorder.log import Log

ClientT = TypeVar("ClientT")
_HOOK = "_send_request"


def refuse_others(client: object) -> type[Any]:
    """Check the kind of a client, and return its recording mixin.

    Raises:
        RequestError: It is not a client of the package openai, or of an unsupported version.
        MissingExtra: The package openai is not installed.
    """
    openai = need("openai", extra="openai")
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise RequestError(
            f"a recorder takes an OpenAI or AsyncOpenAI client, not {type(client).__name__}",
            hint="trajkit.Recorder(OpenAI(), store=...)",
        )
    if not callable(getattr(type(client), _HOOK, None)):
        raise RequestError(
            f"the recorder does not support openai {openai.__version__}: it sends requests in another way",
            hint="pip install 'trajkit[openai]'",
        )
    return _Recorded if isinstance(client, openai.OpenAI) else _RecordedAsync


def recorded(client: ClientT, log: Log) -> ClientT:
    """Return a recorded copy of the client, with the same settings and connections.

    Raises:
        RequestError: As `refuse_others`.
        MissingExtra: The package openai is not installed.
    """
    mixin = refuse_others(client)
    if getattr(client, "_trajkit_log", None) is log:
        return client
    original = type(client)
    made = type(
        original.__name__,
        (mixin, original),
        {"__module__": original.__module__, "__qualname__": original.__qualname__, "_trajkit_log": log},
    )
    copy: Any = object.__new__(made)
    # `client.chat` and similar objects are created on first use, and keep their client
    vars(copy).update({name: value for name, value in vars(client).items() if not _is_cached(original, name)})
    return copy  # type: ignore[no-any-return]  # of a class that descends from the client's


def _is_cached(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


class _Recorded:
    """The mixin of a recorded client, before `OpenAI` in its base classes."""

    _trajkit_log: ClassVar[Log]

    def _send_request(self, request: Any, *, stream: bool, **options: Any) -> Any:
        send: Any = getattr(super(), _HOOK)
        call = _begin(self, request)
        if call is None:
            return send(request, stream=stream, **options)
        try:
            response = send(request, stream=stream, **options)
        except BaseException as error:
            call.failed(error)
            raise
        call.answered(response, is_async=False)
        return response


class _RecordedAsync:
    """The mixin of a recorded client, before `AsyncOpenAI` in its base classes."""

    _trajkit_log: ClassVar[Log]

    async def _send_request(self, request: Any, *, stream: bool, **options: Any) -> Any:
        send: Any = getattr(super(), _HOOK)
        call = _begin(self, request)
        if call is None:
            return await send(request, stream=stream, **options)
        try:
            response = await send(request, stream=stream, **options)
        except BaseException as error:
            call.failed(error)
            raise
        call.answered(response, is_async=True)
        return response


def _begin(client: Any, request: Any) -> RunningCall | None:
    from trajkit.rollouts.recorder.episode import current_scope

    log: Log = client._trajkit_log
    with log.guard("call"):
        log.refuse_forks()
        keys = [
            key
            for name in ("api_key", "admin_api_key")
            if isinstance(key := getattr(client, name, None), str)
        ]
        asked = log.asked(request, keys)
        if asked is not None:
            scope = current_scope(log)
            return RunningCall(log, asked, scope and scope.episode, scope and scope.agent)
    return None
