"""What `sft`, `dpo`, `kto` and `rl` share."""
