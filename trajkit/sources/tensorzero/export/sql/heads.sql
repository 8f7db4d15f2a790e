-- Of which steps the prompt, or the input, must be brought as a whole, although it came without its head: where the
-- head is not what the step before was sent, or the input is not what the model was sent.
--
-- Reads: chosen_step, known_call, known_input, broken, prefix, and the variables first_slot, last_slot. Makes: headless.

CREATE OR REPLACE TEMP TABLE headless AS
WITH alone AS (
    -- an inference with one model call: any_value is the value
    SELECT inference_id::UUID AS inference_id, any_value(n_bytes) AS n_bytes, any_value(whole_hash) AS whole_hash,
        any_value(head_bytes) AS head_bytes, any_value(head_hash) AS head_hash, any_value(system_number) AS system_number
    FROM known_call GROUP BY ALL HAVING count(*) = 1
), step AS (
    SELECT c.inference_id, c.episode_id, c.step_index, a.* EXCLUDE (inference_id),
        bool_or(b.inference_id IS NOT NULL) OVER (PARTITION BY c.episode_id) AS is_broken
    FROM chosen_step c
    LEFT JOIN alone a ON a.inference_id = c.inference_id
    LEFT JOIN (SELECT DISTINCT inference_id::UUID AS inference_id FROM broken) b ON b.inference_id = c.inference_id
    WHERE c.slot BETWEEN getvariable('first_slot') AND getvariable('last_slot')
), compared AS (
    SELECT *, coalesce(NOT is_broken AND lag(step_index) OVER turns = step_index - 1
        AND lag(n_bytes) OVER turns = head_bytes + 1 AND lag(whole_hash) OVER turns = head_hash
        AND lag(system_number) OVER turns = system_number, false) AS goes_on
    FROM step WINDOW turns AS (PARTITION BY episode_id ORDER BY step_index)
), decided AS (
    -- what does not go on is compared with the prompt before it, which is needed, too
    SELECT *, goes_on AND coalesce(lead(goes_on) OVER turns, true) AS is_proven
    FROM compared WINDOW turns AS (PARTITION BY episode_id ORDER BY step_index)
)
SELECT d.inference_id,
    NOT coalesce(is_proven, false) AND d.inference_id IN (
        SELECT inference_id::UUID FROM known_call WHERE is_headless) AS is_prompt_wanted,
    i.inference_id IS NOT NULL AND NOT coalesce(NOT is_broken AND d.n_bytes = said_bytes AND d.whole_hash = said_hash
        AND starts_with(i.input, p.prefix), false) AS is_input_wanted
FROM decided d
LEFT JOIN (SELECT * REPLACE (inference_id::UUID AS inference_id) FROM known_input WHERE is_short) i
    ON i.inference_id = d.inference_id
LEFT JOIN prefix p ON p.system_number = d.system_number;
