from __future__ import annotations

from trajkit.schema import Message, Role, TextBlock, UnknownBlock, message


def test_text_of_a_message_joins_its_text_blocks_and_skips_the_others():
    said = Message(role=Role.USER, content=(TextBlock(text="a"), UnknownBlock(data=1), TextBlock(text="b")))
    assert said.text == "a\nb"
    assert Message(role=Role.USER, content=()).text == ""


def test_a_message_of_one_text_takes_the_role_by_name():
    assert message("assistant", "hello") == Message(role=Role.ASSISTANT, content=(TextBlock(text="hello"),))


def test_unknown_content_is_kept_verbatim():
    data = {"type": "hologram", "deep": [1, None, {"x": "ü"}]}
    assert Message.model_validate(
        {"role": "user", "content": [{"type": "unknown", "data": data}]}
    ).content == (UnknownBlock(data=data),)
