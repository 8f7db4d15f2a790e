"""What `push` shows and asks before it sends."""
