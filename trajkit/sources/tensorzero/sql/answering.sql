-- Of several model calls for one inference, the one that gave the answer: the only one whose text is the answer.
--
-- Reads: several, call, bucket_step, spooled_inference, spooled_prompt. Fills: answering.

INSERT INTO answering
WITH candidate AS (
    SELECT c.inference_id, c.model_inference_id, json_extract_string(m.output, '$[#-1].text')
        IS NOT DISTINCT FROM coalesce(
            json_extract_string(i.output, '$.raw'), json_extract_string(i.output, '$[#-1].text')) AS is_match
    FROM call c SEMI JOIN several USING (inference_id) JOIN bucket_step s USING (inference_id)
    JOIN spooled_prompt m ON m.call_row = c.call_row JOIN spooled_inference i ON i.input_row = s.input_row
)
SELECT inference_id, arg_max(model_inference_id, (is_match, model_inference_id)), count(*) FILTER (is_match) <> 1
FROM candidate GROUP BY inference_id;
