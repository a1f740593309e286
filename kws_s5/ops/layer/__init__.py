"""A pre-norm S5 layer as one operation on CPUs."""
