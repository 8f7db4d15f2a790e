-- Prompts that must be looked into as a whole: of other blocks than text, or to be compared with a neighbour.
--
-- Reads: said, continued, apart, spooled_prompt. Fills: prompted, and unreadable where it is no list of messages.

INSERT INTO prompted
SELECT s.inference_id, s.answer,
    CASE WHEN s.is_plain THEN plain_prompt(m.system, m.input_messages) ELSE as_prompt(m.system, m.input_messages) END
FROM spooled_prompt m JOIN said s ON s.call_row = m.call_row
WHERE s.has_prompt AND (NOT s.is_plain AND s.inference_id NOT IN (SELECT inference_id FROM continued)
    OR s.inference_id IN (SELECT inference_id FROM apart UNION ALL SELECT id_before FROM apart));

INSERT OR IGNORE INTO unreadable SELECT inference_id, 'prompt is not a list of messages' FROM prompted WHERE prompt IS NULL;
