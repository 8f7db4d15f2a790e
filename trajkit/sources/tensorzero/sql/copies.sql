-- Rows that the database holds more than once, left out but for one: its tables only grow, and a write that was tried
-- again may be in them twice.
--
-- Reads and changes: bucket_step, call. Makes: several, anew.

DELETE FROM bucket_step WHERE rowid NOT IN (SELECT min(rowid) FROM bucket_step GROUP BY inference_id);

-- A call that was made up for a prompt that is rendered has no id of its own: there is one for an inference.
DELETE FROM call WHERE rowid NOT IN (
    SELECT min(rowid) FROM call GROUP BY coalesce(model_inference_id, inference_id::VARCHAR));

CREATE OR REPLACE TEMP TABLE several AS
SELECT inference_id FROM call GROUP BY inference_id HAVING count(*) > 1;
