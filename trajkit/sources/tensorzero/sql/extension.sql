-- Which prompts go on where the one of the step before ends (its answer may come first), and where the new text begins.
--
-- Reads: prompted, conversing. Fills: extension. Agents that write their history into one message never get here.

CREATE OR REPLACE TEMP TABLE conversation AS
SELECT inference_id, episode_id, step_index, prompt, answer FROM prompted
WHERE episode_id IN (SELECT episode_id FROM conversing);

INSERT INTO extension
WITH ordered AS (
    -- of the very step before: the prompt of another one may be unknown
    SELECT inference_id, CASE WHEN lag(step_index) OVER turns = step_index - 1 THEN lag(inference_id) OVER turns END
        AS id_before
    FROM conversation WINDOW turns AS (PARTITION BY episode_id ORDER BY step_index)
), pair AS (
    SELECT s.inference_id, s.prompt, left(b.prompt, -1) AS stem, b.answer, json_array_length(b.prompt) AS n_before
    FROM conversation s JOIN ordered USING (inference_id) JOIN conversation b ON b.inference_id = ordered.id_before
    WHERE strlen(s.prompt) > strlen(b.prompt) AND starts_with(s.prompt, left(b.prompt, -1))
)
SELECT inference_id,
    CASE WHEN has_answer THEN n_before + 1 ELSE n_before END AS n_kept,
    CASE WHEN has_answer THEN length(stem) + length(answer) + 2 ELSE length(stem) + 1 END AS start
FROM (
    SELECT *, starts_with(prompt, stem || ',' || answer)
        AND substr(prompt, length(stem) + length(answer) + 2, 1) IN (',', ']') AS has_answer
    FROM pair
)
WHERE n_before > 0 AND substr(prompt, length(stem) + 1, 1) = ',';
