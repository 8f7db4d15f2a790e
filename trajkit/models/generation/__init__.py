"""Language models of this machine: what is asked, what they answer, many at once."""
