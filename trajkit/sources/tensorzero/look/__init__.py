"""What a database holds, counted by the database itself."""
