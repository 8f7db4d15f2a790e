"""One client for each kind of database: it streams the tables of `tables.py` as Arrow batches."""
