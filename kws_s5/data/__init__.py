"""From files to batches. Knows no model."""
