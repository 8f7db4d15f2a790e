-- Answers of chat functions that are one text.
--
-- Reads: spooled_inference. Fills: unusual_answer.

INSERT INTO unusual_answer
SELECT input_row, as_said(output), false, NULL
FROM spooled_inference
WHERE function_type <> 'json' AND is_one_text(output);
