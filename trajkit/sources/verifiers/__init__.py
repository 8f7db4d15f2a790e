"""Results of evaluations with verifiers: `results.jsonl` until 0.1, `traces.jsonl` from its version 1 on."""
