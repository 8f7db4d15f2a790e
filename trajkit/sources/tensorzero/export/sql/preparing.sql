-- Calls that did not give the action: another one of the same step of the environment came after them.
--
-- Reads: bucket_step. Fills: preparing.

INSERT INTO preparing
SELECT inference_id, true FROM (
    SELECT inference_id, env_step, lead(env_step) OVER (PARTITION BY episode_id ORDER BY step_index) AS env_step_after
    FROM bucket_step
)
WHERE env_step = env_step_after;
