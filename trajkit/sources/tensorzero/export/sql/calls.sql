-- The steps and the model calls of some buckets, narrow: the small sides of joins with the texts.
--
-- Reads: chosen_step, spooled_inference, spooled_call, and the variables first_slot, last_slot.
-- Makes: bucket_step, call, several, and preparing and answering (empty).

CREATE OR REPLACE TEMP TABLE bucket_step AS
SELECT c.*, i.input_row, i.env_step FROM chosen_step c
JOIN (SELECT inference_id::UUID AS inference_id, input_row, env_step FROM spooled_inference) i USING (inference_id)
WHERE c.slot BETWEEN getvariable('first_slot') AND getvariable('last_slot');

CREATE OR REPLACE TEMP TABLE preparing (inference_id UUID, is_preparing BOOLEAN);

CREATE OR REPLACE TEMP VIEW call AS
SELECT * REPLACE (inference_id::UUID AS inference_id, model_inference_id::UUID AS model_inference_id) FROM spooled_call;

-- Which model call gave the answer: the only one, or, where several were made, the only one whose text is the answer.
CREATE OR REPLACE TEMP TABLE several AS
SELECT inference_id FROM call GROUP BY inference_id HAVING count(*) > 1;

CREATE OR REPLACE TEMP TABLE answering (inference_id UUID, model_inference_id UUID, is_ambiguous BOOLEAN);
