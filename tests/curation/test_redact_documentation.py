"""docs/redact.md: its commands print what is shown, of a store with the text that the page begins with."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path

import pytest

from tests.pages import printed
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

PAGE = (Path(__file__).parents[2] / "docs" / "redact.md").read_text(encoding="utf-8")
VALUES = {
    "[OPENAI_KEY_1]": "sk-" + "".join(random.Random(3).choices(string.ascii_letters + string.digits, k=40)),
    "[EMAIL_1]": "joe.doe" + "@corp.io",
    "[PHONE_1]": "+1 415 233 8712",
    "[HOME_PATH_1]": "jdoe7",
}


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    (clean,) = re.findall(r"^    (my key is .*)$", PAGE, re.MULTILINE)
    text = f"{clean} (again: [EMAIL_1]; C-123456)"
    for placeholder, value in VALUES.items():
        assert placeholder in text
        text = text.replace(placeholder, value)
    step = Transition(step_index=0, messages=(message("user", text),), completion=message("assistant", "go"))
    write_episodes(
        tmp_path / "stores" / "goto", [Episode(episode_id="a", source="test", steps=(step,))], kind="test"
    )
    shown = printed(PAGE, tmp_path, COLUMNS="100")
    assert len(shown) == 3
    (one,) = open_dataset(tmp_path / "stores" / "public")
    assert one.steps[0].messages is not None
    assert one.steps[0].messages[0].text == f"{clean} (again: [EMAIL_1]; [CUSTOMER_1])"
    said = "".join(each.output for each in shown)
    assert not [value for value in VALUES.values() if value in said]
