"""PostgreSQL: its connections, reading and writing."""
