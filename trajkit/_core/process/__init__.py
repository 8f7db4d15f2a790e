"""What belongs to a process: its arguments, its memory, closing what it opened."""
