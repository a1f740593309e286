"""Runs: typed functions that return a complete config, and the command kws-train."""
