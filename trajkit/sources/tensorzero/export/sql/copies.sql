-- Rows that the database holds more than once, left out but for one: its tables only grow, and a write that was tried
-- again may be in them twice.
--
-- Reads: spooled_call. Reads and changes: bucket_step, call. Makes: several, anew.

DELETE FROM bucket_step WHERE rowid NOT IN (SELECT min(rowid) FROM bucket_step GROUP BY inference_id);

-- A call that was made up for a prompt that is rendered has no id of its own: there is one for an inference.
CREATE OR REPLACE TEMP TABLE one_call AS
SELECT min(call_row) AS call_row FROM call GROUP BY coalesce(model_inference_id, inference_id);

CREATE OR REPLACE TEMP VIEW call AS
SELECT * REPLACE (inference_id::UUID AS inference_id, model_inference_id::UUID AS model_inference_id)
FROM spooled_call WHERE call_row IN (SELECT call_row FROM one_call);

CREATE OR REPLACE TEMP TABLE several AS
SELECT inference_id FROM call GROUP BY inference_id HAVING count(*) > 1;
