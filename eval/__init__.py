"""Evaluation at any sample rate: protocols, reports, and the command kws-eval."""
