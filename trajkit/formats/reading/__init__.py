"""Read other people's training files and traces: one file per format."""

__all__ = [
    "alpaca",
    "atif",
    "atif_parts",
    "atif_rows",
    "balrog",
    "benchflow",
    "document",
    "harbor",
    "inspect",
    "preference",
    "sanity",
    "sharegpt",
]
