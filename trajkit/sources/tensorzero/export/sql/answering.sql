-- Of several model calls for one inference, the one that gave the answer: the only one that says what the answer says.
-- Where several say it (candidates that agree), any of them stands for all, if they are one model on one prompt.
--
-- Reads: several, call, bucket_step, spooled_inference, spooled_prompt. Fills: answering.

INSERT INTO answering
WITH candidate AS (
    SELECT c.inference_id, c.model_inference_id,
        [md5(coalesce(m.system, '')), md5(m.input_messages), c.model_name, c.model_provider_name] AS asked,
        CASE WHEN i.function_type = 'json' THEN list_contains(
                json_extract_string(m.output, '$[*].text') || json_extract_string(m.output, '$[*].arguments'),
                json_extract_string(i.output, '$.raw'))
            ELSE as_content(m.output) IS NOT DISTINCT FROM as_content(i.output) END AS is_match
    FROM (SELECT call_row, system, input_messages, nullif(output, '') AS output FROM spooled_prompt) m
    JOIN (
        SELECT call.*, s.input_row
        FROM call SEMI JOIN several USING (inference_id) JOIN bucket_step s USING (inference_id)
    ) c ON c.call_row = m.call_row
    JOIN (
        SELECT input_row, function_type, output FROM spooled_inference WHERE input_row IN (
            SELECT input_row FROM bucket_step SEMI JOIN several USING (inference_id))
    ) i ON i.input_row = c.input_row
)
SELECT inference_id, coalesce(min(model_inference_id) FILTER (is_match), max(model_inference_id)),
    count(DISTINCT asked) FILTER (is_match) <> 1
FROM candidate GROUP BY inference_id;
