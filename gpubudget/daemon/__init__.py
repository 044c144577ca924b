"""The scheduler daemon: HTTP outside, one writer and SQLite inside."""
