"""Read other people's training files and traces: one file per format."""
