"""The command line: read options, one library call, print."""
