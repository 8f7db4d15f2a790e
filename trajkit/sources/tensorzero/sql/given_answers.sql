-- Answers that somebody said should have been given, as the targets of the steps that they were given for.
--
-- Reads: demonstration_value, bucket_step, spooled_inference. Fills: given_answer.

INSERT INTO given_answer
SELECT s.inference_id, as_given_answer(d.demonstration),
    CASE WHEN i.function_type = 'json' THEN coalesce(json_type(d.demonstration, '$.parsed'), 'NULL') = 'NULL'
        ELSE is_invalid_chat(d.demonstration) END
FROM demonstration_value d JOIN bucket_step s USING (inference_id) JOIN spooled_inference i ON i.input_row = s.input_row;
