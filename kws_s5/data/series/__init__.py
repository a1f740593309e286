"""The user's own irregular series from CSV files."""
