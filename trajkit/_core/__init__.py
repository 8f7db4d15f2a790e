"""What every room uses: lazy imports, files, settings, ids, seeds and secrets."""
