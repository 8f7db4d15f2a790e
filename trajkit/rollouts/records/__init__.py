"""Write down what was played: journal, rows of a store, summary."""
