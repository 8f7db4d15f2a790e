-- Prompts that must be looked into: of other blocks than text, or of an episode that may be one conversation.
--
-- Reads: said, conversing, spooled_prompt. Fills: prompted.

INSERT INTO prompted
SELECT s.inference_id, s.episode_id, s.step_index, s.answer, as_prompt(m.system, m.input_messages)
FROM spooled_prompt m JOIN said s ON s.call_row = m.call_row
WHERE s.has_prompt AND (NOT s.is_plain OR s.episode_id IN (SELECT episode_id FROM conversing));
