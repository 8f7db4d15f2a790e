"""Write the lines of a training file, as columns or one by one."""
