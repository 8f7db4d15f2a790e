-- Answers that somebody said should have been given, as the targets of the steps that they were given for.
--
-- Reads: demonstration_value, bucket_step, spooled_inference. Fills: given_answer.

INSERT INTO given_answer
SELECT g.inference_id, as_given_answer(g.demonstration),
    CASE WHEN i.function_type = 'json' THEN coalesce(json_type(g.demonstration, '$.parsed'), 'NULL') = 'NULL'
        ELSE is_invalid_chat(g.demonstration) END
FROM spooled_inference i JOIN (
    SELECT inference_id, input_row, demonstration FROM demonstration_value JOIN bucket_step USING (inference_id)
) g ON g.input_row = i.input_row;
