"""Captured decode steps: one batch size, several, padding, and an audit of who wrote where."""

from s13lib.graphs.audit import CacheAudit, CacheCorruption
from s13lib.graphs.bucketed import BucketedRunner
from s13lib.graphs.padding import PADDINGS
from s13lib.graphs.runner import GraphRunner

__all__ = ["PADDINGS", "BucketedRunner", "CacheAudit", "CacheCorruption", "GraphRunner"]
