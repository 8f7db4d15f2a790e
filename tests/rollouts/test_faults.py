"""The texts are TensorZero 2026.6.0's own, recorded from its embedded gateway and its HTTP client."""

import pytest

from trajkit.rollouts.faults import (
    FaultKind,
    fault_with_status,
    fault_without_status,
    retry_after_s,
    shown,
)

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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached for gpt-4o. Please try again in 20ms. Visit …", 0.02),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1m30.5s", 90.5),
        ("Please try again in 1h2m3s", 3723),
        ("Please retry after 7 seconds.", 7),
        ("try again in 500 milliseconds", 0.5),
        ('{"retry-after": "12"}', 12),
        ("Retry-After: 3", 3),
        ("slow down", None),
        ("please retry after a while", None),
        ("2 of 3 requests failed, try again in turn", None),
    ],
)
def test_when_to_come_back_is_read_from_the_words_of_the_service(text, seconds):
    assert retry_after_s(text) == (seconds if seconds is None else pytest.approx(seconds))


def test_too_many_requests_say_when_to_come_back_however_they_arrive():
    text = FAILED + "Error 429 Too Many Requests from openai client: Please try again in 1.5s."
    assert fault_with_status(500, text).retry_after_s == 1.5
    assert fault_with_status(429, "retry after 2 seconds").retry_after_s == 2
