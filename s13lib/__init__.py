"""Measure, fuse, capture: why a GPU idles at batch-1 LLM decode, and what removes the wait."""

__version__ = "0.1.0"
