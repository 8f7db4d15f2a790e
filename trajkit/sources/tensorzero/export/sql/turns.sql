-- The steps of the episodes that may be conversations, in order, for `continued.py`.
--
-- Reads: said, conversing. Makes: turn.

CREATE OR REPLACE TEMP TABLE turn AS
SELECT row_number() OVER (ORDER BY bucket, episode_id, step_index) AS turn, inference_id, bucket, call_row, is_plain,
    -- of the very step before: the prompt of another one may be unknown
    CASE WHEN lag(step_index) OVER turns = step_index - 1 THEN lag(call_row) OVER turns END AS row_before,
    CASE WHEN lag(step_index) OVER turns = step_index - 1 THEN lag(inference_id) OVER turns END AS id_before
FROM said WHERE has_prompt AND episode_id IN (SELECT episode_id FROM conversing)
WINDOW turns AS (PARTITION BY episode_id ORDER BY step_index)
ORDER BY ALL;
