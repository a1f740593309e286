"""Folders of recorded words, from files to batches."""
