"""A client that is the user's own in every way, and is recorded.

Where to listen was a choice. A proxy around `chat.completions` and `responses` would have to follow every
method (create, parse, stream, raw and streaming responses, tool runners) and would not be an `OpenAI`. A
transport below the HTTP client would have to be put into the user's own HTTP client, which other clients may
share, and `with_options(http_client=...)` would lose it. So the recorded client is an object of a subclass
made for it, whose one method is `_send_request`: the library sends each request and gets each response
through it. There JSON is exactly as it is on the wire, copies (`with_options`) are of the same class and
recorded too, and neither the user's client nor its class is touched.
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
    """What makes a client of this kind a recorded one.

    Raises:
        RequestError: It is no client of the package openai, or of a version that sends in another way.
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
            f"openai {openai.__version__} sends requests in a way that the recorder does not know",
            hint="pip install 'trajkit[openai]'",
        )
    return _Recorded if isinstance(client, openai.OpenAI) else _RecordedAsync


def recorded(client: ClientT, log: Log) -> ClientT:
    """The client again, with the same settings and connections, recorded.

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
    # `client.chat` and its like are made on first use, and hold on to the client that made them
    vars(copy).update({name: value for name, value in vars(client).items() if not _is_cached(original, name)})
    return copy  # type: ignore[no-any-return]  # of a class that descends from the client's


def _is_cached(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


class _Recorded:
    """What a recorded client does otherwise; goes before `OpenAI` in its ancestors."""

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
    """The same before `AsyncOpenAI`."""

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
