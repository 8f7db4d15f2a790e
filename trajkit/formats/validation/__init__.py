"""What a training file holds, told before somebody refuses it or learns the wrong thing from it."""
