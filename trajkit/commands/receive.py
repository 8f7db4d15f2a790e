"""Receive traces that programs send, like a collector of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trajkit.commands.options.types import NewFolder, Option

if TYPE_CHECKING:
    from trajkit.sources.otel.receiver import Receiver


def receive(
    *,
    output: NewFolder,
    port: Annotated[int, Option(least=0, most=65535)] = 4318,
    until_idle: Annotated[float | None, Option(metavar="SECONDS", least=0, is_open=True)] = None,
) -> Receiver:
    """Receive OpenTelemetry traces from programs (OTLP over HTTP), until Ctrl-C.

    Programs send to the address that is printed: it is the default of OpenTelemetry's SDKs, else the value of
    OTEL_EXPORTER_OTLP_ENDPOINT, with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf. Only local programs can reach
    it. Each request is on disk before it is answered. `trajkit import FOLDER --from otel` makes a store of
    the traces, even while more arrive.

    SDKs keep 128 attributes of a span, and OpenInference needs several for each message: set
    OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 where the program runs, or long prompts are cut.

    Args:
        output: The folder where traces are kept; new ones are added.
        port: Port on loopback; 0 takes a free one.
        until_idle: End when nothing has arrived for this many seconds.

    Raises:
        StackError: The port is taken.
        StoreError: The folder cannot be written, or another process writes to it.
        MissingExtra: A package of trajkit[otel] is not installed.

    Example:
        trajkit receive -o traces
        trajkit receive -o traces --port 0 --until-idle 60
    """
    from trajkit.sources.otel.receiver import receive as receive_into

    return receive_into(Path(output), port=port, idle_s=until_idle)
