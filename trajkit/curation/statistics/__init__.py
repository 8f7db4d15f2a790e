"""What is in a store: numbers, intervals, charts and pages."""
