"""Trace files for tests."""

import gzip
import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Write events, or text or bytes as they are, to a file."""

    def make(content, name="trace.json", **headers):
        path = tmp_path / name
        if isinstance(content, list):
            content = json.dumps({"schemaVersion": 1, **headers, "traceEvents": content})
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return make
