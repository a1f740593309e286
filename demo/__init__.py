"""Gradio widgets around the library; kws-demo. Nothing here may talk to the world outside."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
