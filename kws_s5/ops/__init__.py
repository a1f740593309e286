"""Everything compiled, and nothing else: one folder an operation, a plain reference beside the fast files."""
