-- Answers that are not just the text of a JSON function: those of chat functions, and those with thoughts.
--
-- Reads: spooled_inference. Fills: unusual_answer. The expressions are long to plan, and most buckets have no such row.

INSERT INTO unusual_answer
SELECT input_row,
    CASE WHEN function_type = 'json' THEN as_thoughtful_answer(json_extract_string(output, '$.raw'), auxiliary_content)
        ELSE as_chat_answer(output) END,
    function_type = 'chat' AND CASE WHEN output = '[]' THEN true
        WHEN NOT contains(output, '"tool_call"') THEN false
        ELSE len(list_filter(from_json(output, '["JSON"]'), lambda b: b->>'$.type' = 'tool_call'
            AND ((b->>'$.name') IS NULL OR (b->>'$.arguments') IS NULL))) > 0 END,
    CASE WHEN function_type = 'chat' AND contains(output, '"tool_call"') THEN to_json(list_transform(
        list_filter(from_json(output, '["JSON"]'), lambda b: b->>'$.type' = 'tool_call'),
        lambda b: json_object('name', b->>'$.raw_name', 'arguments',
            CASE WHEN (b->>'$.arguments') IS NULL THEN to_json(b->>'$.raw_arguments') ELSE b->'$.arguments' END))) END
FROM spooled_inference
WHERE is_unusual(function_type, auxiliary_content);
