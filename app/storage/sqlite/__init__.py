"""SQLite: its connections, reading and writing."""
