"""Commands that listen: long files (kws-scan) and the microphone (kws-listen)."""
