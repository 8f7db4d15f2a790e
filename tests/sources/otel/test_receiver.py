"""`trajkit receive` answers as OTLP over HTTP says, and what it answered is on the disk."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.sources.otel.record import new_call, request, span, text
from trajkit.cli.main import run
from trajkit.errors import StackError, StoreError
from trajkit.sources.files.importing import import_files
from trajkit.sources.otel.receiver import FILE, Receiver, receive
from trajkit.sources.wish import Wish

JSON, PROTOBUF = "application/json", "application/x-protobuf"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receive(tmp_path / "traces", port=0) as running:
        yield running


def call(trace: int, session: str = "one") -> dict[str, Any]:
    asked = [{"role": "user", "parts": [text(f"question {trace}")]}]
    return span(trace, 1, attributes=new_call(asked, [text("answer")], gen_ai__conversation__id=session))


def post(
    url: str, data: bytes, media_type: str = JSON, *, path: str = "/v1/traces", **headers: str
) -> tuple[int, bytes]:
    asked = urllib.request.Request(f"{url}{path}", data, {"Content-Type": media_type, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def lines(receiver: Receiver) -> list[Any]:
    return [json.loads(line) for line in (receiver.folder / FILE).read_text().splitlines()]


def test_json_is_kept_as_a_line(receiver: Receiver) -> None:
    sent = request(call(1), call(2))
    assert post(receiver.url, json.dumps(sent).encode()) == (200, b"{}")
    packed = gzip.compress(json.dumps(request(call(3, "two"))).encode())
    assert post(receiver.url, packed, f"{JSON}; charset=utf-8", **{"Content-Encoding": "gzip"})[0] == 200
    assert lines(receiver) == [sent, request(call(3, "two"))]
    assert (receiver.n_spans, receiver.n_sessions) == (3, 2)


def test_protobuf_is_kept_as_the_same_json(receiver: Receiver) -> None:
    message = ExportTraceServiceRequest()
    made = message.resource_spans.add().scope_spans.add().spans.add()
    made.trace_id, made.span_id, made.name = b"\x01" * 16, b"\x02" * 8, "chat"
    made.start_time_unix_nano = 1_790_000_000_000_000_001
    made.attributes.add(key="n").value.int_value = 7
    assert post(receiver.url, message.SerializeToString(), PROTOBUF) == (200, b"")
    (kept,) = lines(receiver)
    assert kept["resourceSpans"][0]["scopeSpans"][0]["spans"] == [
        {
            "traceId": "01" * 16,
            "spanId": "02" * 8,
            "name": "chat",
            "startTimeUnixNano": "1790000000000000001",
            "attributes": [{"key": "n", "value": {"intValue": "7"}}],
        }
    ]


def test_chunks_are_put_together(receiver: Receiver) -> None:
    connection = http.client.HTTPConnection(receiver.url.removeprefix("http://"), timeout=20)
    data = json.dumps(request(call(1))).encode()
    pieces = iter([data[:10], data[10:]])
    for _ in range(2):  # on one connection
        connection.request("POST", "/v1/traces", pieces, {"Content-Type": JSON}, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"{}")
        pieces = iter([data])
    connection.close()
    assert receiver.n_spans == 2


def test_a_bad_span_is_rejected_and_the_others_are_kept(receiver: Receiver) -> None:
    bad = {**call(2), "traceId": "xyz"}
    status, said = post(receiver.url, json.dumps(request(call(1), bad)).encode())
    assert status == 200
    assert json.loads(said)["partialSuccess"]["rejectedSpans"] == "1"
    assert "xyz" in json.loads(said)["partialSuccess"]["errorMessage"]
    assert lines(receiver) == [request(call(1))]
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add()
    status, answer = post(receiver.url, message.SerializeToString(), PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    assert (status, partial.rejected_spans) == (200, 1)
    assert "not an id" in partial.error_message


def test_what_is_no_request_is_refused_with_a_reason(receiver: Receiver) -> None:
    traces, packed = "/v1/traces", {"Content-Encoding": "gzip"}
    many = gzip.compress(bytes(60_000_000), 1, mtime=0)
    refused: list[tuple[bytes, str, dict[str, str], str, int]] = [
        (b"{", JSON, {}, traces, 400),
        (b"[1]", JSON, {}, traces, 400),
        (b'{"resourceSpans": 7}', JSON, {}, traces, 400),
        (b"\xff\xff", PROTOBUF, {}, traces, 400),
        (b"no gzip", JSON, packed, traces, 400),
        (gzip.compress(b"{}", mtime=0)[:-6], JSON, packed, traces, 400),
        (b"{}", JSON, {"Content-Encoding": "br"}, traces, 415),
        (b"{}", "text/plain", {}, traces, 415),
        (b"{}", JSON, {}, "/v1/metrics", 404),
        (b"{}", JSON, {"Origin": "http://127.0.0.1:4318"}, traces, 403),
        (many, JSON, packed, traces, 413),
    ]
    for data, media_type, headers, path, status in refused:
        found, said = post(receiver.url, data, media_type, path=path, **headers)
        assert (found, len(said) > 10) == (status, True), data[:40]
        assert (receiver.folder / FILE).read_bytes() == b""
    assert post(receiver.url, json.dumps(request(call(1))).encode())[0] == 200


def test_events_of_logs_are_kept(receiver: Receiver) -> None:
    record = {"eventName": "gen_ai.evaluation.result", "traceId": f"{1:032x}", "spanId": f"{101:016x}"}
    sent = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    assert post(receiver.url, json.dumps(sent).encode(), path="/v1/logs") == (200, b"{}")
    assert lines(receiver) == [sent]


def test_a_port_and_a_folder_have_one_receiver(receiver: Receiver, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="nothing can listen"):
        receive(tmp_path / "other", port=int(receiver.url.rpartition(":")[2]))
    with pytest.raises(StoreError, match=f"process {os.getpid()} already writes to"):
        receive(receiver.folder, port=0)


def test_a_line_that_was_not_whole_is_taken_off(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    whole = json.dumps(request(call(1))) + "\n"
    (folder / FILE).write_text(whole + whole[:100])
    report, _ = import_files(folder, tmp_path / "before", Wish())
    assert report.left == {"an incomplete last line: it was being written": 1}
    with receive(folder, port=0) as again:
        assert (folder / FILE).read_text() == whole
        assert post(again.url, json.dumps(request(call(2))).encode())[0] == 200
    report, _ = import_files(folder, tmp_path / "after", Wish())
    assert (report.n_episodes, report.n_steps, report.left) == (1, 2, {})


def test_what_was_answered_outlives_the_process(tmp_path: Path) -> None:
    process = started(tmp_path)
    url = json.loads(process.stdout.readline())["url"]  # type: ignore[union-attr]
    for number in range(1, 6):
        assert post(url, json.dumps(request(call(number))).encode())[0] == 200
    process.kill()
    process.communicate()
    report, _ = import_files(tmp_path / "traces", tmp_path / "store", Wish())
    assert (report.n_steps, report.problems) == (5, ())


def test_ctrl_c_ends_it_and_it_says_what_to_do_next(tmp_path: Path) -> None:
    process = started(tmp_path)
    url = json.loads(process.stdout.readline())["url"]  # type: ignore[union-attr]
    post(url, json.dumps(request(call(1), call(2))).encode())
    os.kill(process.pid, signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 0
    assert talk.splitlines() == [
        "waiting for traces; Ctrl-C ends it",
        "received 2 spans of 1 session",
        "make a store from them: trajkit import traces --from otel",
    ]


def test_it_ends_when_nothing_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["receive", "-o", str(tmp_path / "traces"), "--port", "0", "--until-idle", "0.3"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "received 0 spans of 0 sessions"


def started(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trajkit", "receive", "-o", "traces", "--port", "0", "--json"]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
