-- Prompts that must be looked into: of other blocks than text, or of an episode that may be one conversation.
--
-- Reads: said, conversing, spooled_prompt. Fills: prompted, and unreadable where it is no list of messages.

INSERT INTO prompted
SELECT s.inference_id, s.episode_id, s.step_index, s.answer,
    CASE WHEN s.is_plain THEN plain_prompt(m.system, m.input_messages) ELSE as_prompt(m.system, m.input_messages) END
FROM spooled_prompt m JOIN said s ON s.call_row = m.call_row
WHERE s.has_prompt AND (NOT s.is_plain OR s.episode_id IN (SELECT episode_id FROM conversing));

INSERT OR IGNORE INTO unreadable SELECT inference_id, 'prompt is not a list of messages' FROM prompted WHERE prompt IS NULL;
