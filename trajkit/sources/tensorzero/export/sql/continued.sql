-- The new messages of prompts that go on where the one of the step before ends; its answer may come first.
--
-- Reads: turn, found_turn (`continued.py`), said. Fills: continued, and apart where SQL must compare the messages.

INSERT INTO apart
SELECT inference_id, id_before FROM turn JOIN found_turn USING (turn) WHERE is_apart;

INSERT INTO continued
WITH spelled_turn AS (
    SELECT t.turn, inference_id, id_before, f.chain, has_system, is_apart OR id_before IS NULL AS begins,
        json_array_length(text) AS n_messages, CASE WHEN is_plain THEN text ELSE as_messages(text) END AS new_messages
    FROM found_turn f JOIN turn t USING (turn) WHERE text IS NOT NULL
), counted AS (
    SELECT *, has_system::INT + (sum(n_messages) OVER earlier)::BIGINT - n_messages AS n_before,
        -- what is no list of messages spoils the prompts that repeat it
        count(*) OVER earlier = count(new_messages) OVER earlier AS is_whole
    FROM spelled_turn WINDOW earlier AS (PARTITION BY chain ORDER BY turn)
), answered AS (
    SELECT c.*, b.answer, coalesce(starts_with(new_messages, '[' || b.answer)
        AND substr(new_messages, length(b.answer) + 2, 1) IN (',', ']'), false) AS has_answer
    FROM counted c JOIN said b ON b.inference_id = c.id_before
    WHERE is_whole AND NOT begins
)
SELECT inference_id, CASE WHEN has_answer THEN n_before + 1 ELSE n_before END,
    CASE WHEN has_answer THEN '[' || ltrim(substr(new_messages, length(answer) + 2), ',') ELSE new_messages END
FROM answered;
