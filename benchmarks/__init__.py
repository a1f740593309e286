"""Speed and memory measured; each file says in its first line what it measures and how to run it."""
