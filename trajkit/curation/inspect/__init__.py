"""One page about logs that somebody has just been handed."""
