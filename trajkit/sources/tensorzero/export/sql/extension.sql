-- Which of the prompts that were compared as messages go on where the one of the step before ends (its answer may come
-- first), and where the new text begins.
--
-- Reads: prompted, apart. Fills: extension. Agents that write their history into one message never get here.

INSERT INTO extension
WITH pair AS (
    SELECT s.inference_id, s.prompt, left(b.prompt, -1) AS stem, b.answer, json_array_length(b.prompt) AS n_before
    FROM apart a JOIN prompted s ON s.inference_id = a.inference_id JOIN prompted b ON b.inference_id = a.id_before
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
