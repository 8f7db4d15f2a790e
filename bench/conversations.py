"""Conversations of a customer support with tools: every command over them, with time and peak memory.

    python bench/conversations.py [--conversations 20000] [--turns 10]
    python bench/conversations.py --write FOLDER --conversations 300 --turns 3

The conversations are synthetic and depend on the seed alone. They have no environment, task or seed: only a
customer, and what the customer did. A share of them has a thumb up or down; where the customer asked for the
answer again or picked one of two, there are two rows with one prompt; what a person corrected is in a file of
its own, as preference rows. Texts have names, mail addresses, phone numbers, and a few planted keys.

Each command runs in a process of its own, so that its peak memory is its own. Exit 1 when a limit is missed.
`--write` only writes the files.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.measured import machine, measured

MAX_SECONDS = 60.0
MAX_MB = 600.0
CHATS, EDITS = "chats.jsonl", "edits.jsonl"
STARTED_S = 1_767_225_600
"""The first conversation: 2026-01-01, UTC."""
_CONVERSATIONS_PER_CUSTOMER = 8

_CHAT = ("--metric", "thumbs_up=columns.thumbs_up", "--metric", "picked=columns.picked")
COMMANDS: dict[str, tuple[str, ...]] = {
    "import": ("import", CHATS, *_CHAT, "--tag", "customer=columns.customer", "-o", "store"),
    "import edits": ("import", EDITS, "--tag", "customer=columns.customer", "-o", "edits"),
    "info": ("info", "store", "--json"),
    "stats": ("stats", "store", "--json"),
    "stats --by customer": ("stats", "store", "--by", "tags.customer", "--json"),
    "show": ("show", "store", "0", "--json"),
    "query": ("query", "store", "SELECT count(*) FROM steps", "--json"),
    "select": ("select", "store", "--where", "thumbs_up", "--control", "-o", "good", "--json"),
    "dedupe": ("dedupe", "store", "--exact", "-o", "unique", "--json"),
    "dedupe --near": ("dedupe", "store", "--near", "0.9", "--dry-run", "--json"),
    "redact": ("redact", "store", "-o", "clean", "--no-gate", "--json"),
    "mask": ("mask", "store", "--reason", "truncated", "--dry-run", "--json"),
    "split --by customer": ("split", "clean", "--by", "tags.customer", "-o", "sides", "--json"),
    "leak": ("leak", "sides/train", "sides/val", "--json"),
    "pairs": (
        *("pairs", "sides/train", "--match", "prompt", "--score", "picked", "--margin", "1"),
        *("-o", "pairs", "--json"),
    ),
    "convert": ("convert", "sides/train", "--to", "openai-sft", "-o", "train.jsonl", "--json"),
    "tokens": ("tokens", "train.jsonl", "--model", "sample:tiny-base", "--json"),
    "validate": ("validate", "train.jsonl", "--target", "openai", "--json"),
    "push --dry-run": ("push", "clean", "me/shop", "--license", "apache-2.0", "--dry-run", "--json"),
}
"""The commands in the order in which they need each other."""
MAY_FAIL = ("leak", "validate", "push --dry-run")
"""Commands that end with 1 for what they find in such data."""

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find_order",
            "description": "Find the state of an order.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string"}},
                "required": ["order"],
            },
        },
    }
]
_SYSTEM = "You help customers of a shop. Look an order up before you speak of it."
_STATES = ("packed", "shipped", "delivered", "cancelled", "returned")
_THINGS = ("a kettle", "two lamps", "a desk", "red shoes", "a phone case", "a tent", "six cups", "a coat")
_ASKED = (
    "Where is my order {order}? I bought {thing}.",
    "I want my money back for order {order}, {thing} arrived broken.",
    "Can you tell me whether order {order} was sent? It is {thing}.",
    "My name is {name}, and {thing} of order {order} never came.",
    "Please write to {mail} when order {order} is there.",
    "Call me at {phone} about order {order}, it is urgent.",
)
_KEPT_ASKING = (
    "And what about {thing}?",
    "Thank you. Is {thing} in stock again, and how long does it take?",
    "That does not help me, {thing} was a present.",
    "Could you check that once more, please? My mail is {mail}.",
    "How do I send {thing} back without the box?",
)
_GOOD = "It is {state}. Anything else?"
_BAD = "Please wait some days, it should come."
_TALK = ("We have {thing} in stock. Anything else?", "I do not know, please look at the site.")
_WORDS = (
    "the box was open when it came and my neighbour took it from the driver because nobody rang at our "
    "door last week I wrote twice without any reply which is why this feels slow although your shop used "
    "to be quick maybe the label got wet or someone typed another street we moved in spring so please "
    "compare both places it should match the blue sofa not green as pictured also one screw is missing "
    "plus half of the manual my daughter needs it before her birthday on friday otherwise keep it cheap "
    "since money is short this month"
)
_KEY = "ABCDEFGHJKLMNPQRSTabcdefghjkmnpqrst23456789"
_FIRST = ("Maria", "Jonas", "Aisha", "Pavel", "Lin", "Grace", "Otto", "Ilse", "Samir", "Nora")
_LAST = ("Keller", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Silva", "Novak", "Brandt", "Haddad", "Reyes")


class Case:
    """One customer's matter: its conversation, and what the customer made of the last answer."""

    def __init__(self, number: int, seed: int, n_cases: int, n_turns: int) -> None:
        self.number, self.n_turns = number, n_turns
        self._draw = draw = random.Random(f"{seed}:{number}")
        self.customer = f"customer-{draw.randrange(max(1, n_cases // _CONVERSATIONS_PER_CUSTOMER)):05d}"
        name = random.Random(self.customer)
        self._name = f"{name.choice(_FIRST)} {name.choice(_LAST)}"
        host = f"mail.{name.choice(('de', 'fr', 'pt'))}"
        self._mail = f"{self._name.lower().replace(' ', '.')}{name.randrange(1000)}@{host}"
        self._phone = f"+49 30 {name.randrange(1_000_000, 10_000_000)}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the case: one, or two where the customer asked again or picked one of two."""
        messages = self._before_last()
        good, bad = self._answers(messages[-1])
        kind = self._draw.random()
        if kind < 0.05:  # asked again: the first answer was no good
            yield self._row(messages, bad, "a", thumbs_up=False)
            yield self._row(messages, good, "b", thumbs_up=True)
        elif kind < 0.15:  # saw two and picked one
            is_first = self._draw.random() < 0.5
            yield self._row(messages, good if is_first else bad, "a", picked=float(is_first))
            yield self._row(messages, bad if is_first else good, "b", picked=float(not is_first))
        else:
            is_good = self._draw.random() < 0.7
            says = self._draw.random() < 0.3
            thumb = is_good if self._draw.random() < 0.9 else not is_good
            yield self._row(messages, good if is_good else bad, "", thumbs_up=thumb if says else None)

    def edit(self) -> dict[str, Any] | None:
        """A preference row where a person of the shop wrote a better answer; None for most."""
        if self.number % 20:
            return None
        messages = self._before_last()
        good, bad = self._answers(messages[-1])
        answers = [[{"role": "assistant", "content": text}] for text in (good, bad)]
        return {
            "customer": self.customer,
            "prompt": messages,
            "chosen": answers[0],
            "rejected": answers[1],
            "tools": TOOLS,
        }

    def _row(
        self, messages: list[dict[str, Any]], answer: str, attempt: str, **columns: float | bool | None
    ) -> dict[str, Any]:
        return {
            "id": f"chat-{self.number:06d}{attempt}",
            "customer": self.customer,
            "started_at": STARTED_S + 60 * self.number,
            **columns,
            "tools": TOOLS,
            "messages": [*messages, {"role": "assistant", "content": answer}],
        }

    def _before_last(self) -> list[dict[str, Any]]:
        """Everything up to the last answer; the same at every call."""
        self._draw = random.Random(f"{self.customer}:{self.number}")
        messages: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}]
        for turn in range(self.n_turns):
            is_about_order = turn in (0, self.n_turns - 1) or self._draw.random() < 0.3
            messages.append({"role": "user", "content": self._asked(turn, is_about_order)})
            if is_about_order:
                messages += self._looked_up(turn)
            if turn < self.n_turns - 1:
                good, bad = self._answers(messages[-1])
                messages.append({"role": "assistant", "content": good if self._draw.random() < 0.8 else bad})
        return messages

    def _asked(self, turn: int, is_about_order: bool) -> str:
        draw = self._draw
        self._order, self._thing = str(draw.randrange(100_000, 1_000_000)), draw.choice(_THINGS)
        text = draw.choice(_ASKED if is_about_order else _KEPT_ASKING).format(
            order=self._order, thing=self._thing, name=self._name, mail=self._mail, phone=self._phone
        )
        text += f" {' '.join(draw.choices(_WORDS.split(), k=draw.randint(3, 9)))}."
        if self.number % 100 == 7 and turn == 0:  # pasted by mistake
            text += f" My key is sk-proj-{''.join(draw.choices(_KEY, k=48))}."
        return text

    def _looked_up(self, turn: int) -> list[dict[str, Any]]:
        call_id, state = f"call_{self.number}_{turn}", self._draw.choice(_STATES)
        call = {"name": "find_order", "arguments": json.dumps({"order": self._order})}
        result = json.dumps({"order": self._order, "state": state, "customer": self._name})
        return [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]

    def _answers(self, last: dict[str, Any]) -> tuple[str, str]:
        """A good and a bad answer to a message."""
        if last["role"] != "tool":
            return _TALK[0].format(thing=self._thing), _TALK[1]
        found = json.loads(last["content"])
        return _GOOD.format(state=found["state"]), _BAD


def write_conversations(folder: Path, n_conversations: int, *, n_turns: int, seed: int = 7) -> None:
    """Write the conversations and the corrections as JSON lines, one at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / CHATS).open("w", encoding="utf-8") as chats, (folder / EDITS).open("w") as edits:
        n_written = number = 0
        while n_written < n_conversations:
            case = Case(number, seed, n_conversations, n_turns)
            for row in case.rows():
                chats.write(json.dumps(row) + "\n")
                n_written += 1
            if (edit := case.edit()) is not None:
                edits.write(json.dumps(edit) + "\n")
            number += 1


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the files")
    parser.add_argument("--folder", type=Path, help="where everything is written, and stays")
    options = parser.parse_args()
    if options.write:
        write_conversations(options.write, options.conversations, n_turns=options.turns, seed=options.seed)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        write_conversations(folder, options.conversations, n_turns=options.turns, seed=options.seed)
        n_bytes = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
        size = f"{n_bytes / 1e6:.0f} MB"
        print(f"{options.conversations:,} conversations of {options.turns} turns, {size}; {machine()}")
        missed = False
        for name in COMMANDS:
            seconds, cpu_s, peak_mb = measured(COMMANDS[name], folder, may_fail=name in MAY_FAIL)
            holds = seconds <= MAX_SECONDS and peak_mb <= MAX_MB
            missed |= not holds
            print(
                f"  {'ok    ' if holds else 'MISSED'}  {name:20} {seconds:6.1f} s"
                f"  of processors {cpu_s:6.1f} s  peak {peak_mb:5,.0f} MB",
                flush=True,
            )
    print(f"limits: {MAX_SECONDS:g} s, {MAX_MB:g} MB")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
