"""Fast paths, and nothing else: one folder an operation, a plain reference beside the fast files, one switch."""

from kws_s5.ops.switch import use

__all__ = ["use"]
