"""From features to outputs: fronts, S5 layers, heads. Knows no files."""
