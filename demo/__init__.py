"""Gradio widgets around one KeywordSpotter, and the command kws-demo."""
