"""What `register` and `reserve` share."""
