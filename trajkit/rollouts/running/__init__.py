"""Run attempts side by side within limits of number, time and cost."""
