"""The texts are TensorZero 2026.6.0's own, recorded from its embedded gateway and its HTTP client."""

import pytest

from trajkit.rollout.faults import FaultKind, fault_with_status, fault_without_status, shown

FAILED = "All model providers failed to infer with errors: fake: "


@pytest.mark.parametrize(
    ("status", "text", "kind", "is_lasting"),
    [
        (500, FAILED + 'Error from openai server: {"error":{"message":"boom"}}', FaultKind.SERVER, False),
        (
            500,
            FAILED + "Error 429 Too Many Requests from openai client: slow down",
            FaultKind.RATE_LIMIT,
            False,
        ),
        (500, FAILED + "Error 401 Unauthorized from openai client: bad key", FaultKind.REFUSED, True),
        (500, FAILED + "Error 400 Bad Request from openai client: no", FaultKind.REFUSED, True),
        (
            500,
            FAILED
            + "Error from openai server: Error parsing JSON response: expected value at line 1 column 1",
            FaultKind.UNREADABLE,
            False,
        ),
        (
            500,
            FAILED + "Error from openai server: Response has invalid number of choices: 0. Expected 1.",
            FaultKind.UNREADABLE,
            False,
        ),
        (
            500,
            FAILED
            + "Error from openai client: Error sending request: error sending request for url (http://127.0.0.1:1/v1/chat/completions)",
            FaultKind.CONNECTION,
            False,
        ),
        (
            500,
            "Failed to run ClickHouse query: error sending request for url (http://127.0.0.1:2/?database=tensorzero)",
            FaultKind.NOT_STORED,
            False,
        ),
        (400, "Episode ID: 01a1fe22-730c-7345-9de8-5346b195c4d3 does not exist", FaultKind.NOT_STORED, True),
        (429, "slow down", FaultKind.RATE_LIMIT, False),
        (503, "", FaultKind.SERVER, False),
    ],
)
def test_a_status_is_told_apart_by_its_text(status, text, kind, is_lasting):
    fault = fault_with_status(status, text)
    assert (fault.kind, fault.is_lasting) == (kind, is_lasting)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "Unknown function: zzz"),
        (404, "Unknown metric: nope"),
        (400, "JSON Schema validation failed:\nx"),
        (401, ""),
    ],
)
def test_a_request_that_the_gateway_itself_refuses_is_no_fault_of_a_service(status, text):
    assert fault_with_status(status, text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("HTTP Error: request timed out", FaultKind.TIMEOUT),
        (
            "Internal TensorZero Error: Error from server: error sending request for url (http://127.0.0.1:1/inference)",
            FaultKind.CONNECTION,
        ),
        (
            "Internal TensorZero Error: Error deserializing response: expected value at line 1 column 1",
            FaultKind.UNREADABLE,
        ),
    ],
)
def test_errors_without_a_status_are_told_apart_by_their_text(text, kind):
    assert fault_without_status(text).kind == kind


def test_a_message_is_one_short_line_without_credentials():
    text = shown("no answer from\nhttp://user:secret@db:8123/tensorzero " + "x" * 1000)
    assert text.startswith("no answer from http://***@db:8123/tensorzero x")
    assert len(text) == 300
