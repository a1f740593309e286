"""A layer's discrete system with its gradient written out."""
