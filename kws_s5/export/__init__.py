"""Trained models outside of torch: ONNX graphs, their runtime, and a plain numpy step for porters."""
