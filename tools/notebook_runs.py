"""Run a built notebook as a learner would, from top to bottom in a fresh kernel, and judge what it showed.

The kernel may talk to this machine alone: in it, Python refuses every connection to another one. So a notebook that
would fetch something fails here and not first in a classroom without a network.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

CELL_SECONDS = 240  # a limit against a hang, not a measurement: the slowest cell takes a twentieth of it

# Python imports a module of this name by itself when it starts.
OFFLINE = """
import socket

def is_local(address):
    return not isinstance(address, tuple) or address[0] in ("", "localhost", "0.0.0.0", "::1") or (
        isinstance(address[0], str) and address[0].startswith("127."))

def guarded(method):
    def connect(self, address, *rest):
        if not is_local(address):
            raise OSError(f"external request refused: {address}")
        return method(self, address, *rest)
    return connect

def look_up(host, *rest, **options):
    if not is_local((host,)) and host is not None:
        raise OSError(f"external request refused: {host}")
    return resolve(host, *rest, **options)

socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
resolve, socket.getaddrinfo = socket.getaddrinfo, look_up
"""

#: What makes a browser fetch something: not a link, which waits for a click.
REFERENCE = re.compile(
    r"""(?:<(?:img|script|iframe|source|video|audio|embed|image|use)\b[^>]*?\b(?:src|href)|<link\b[^>]*?\bhref"""
    r"""|<object\b[^>]*?\bdata)\s*=\s*["']?\s*(?:https?:)?//[^"'>\s]+"""
    r"""|url\(\s*["']?(?:https?:)?//[^)]+|@import\s+["'](?:https?:)?//[^"']+"""
    r"""|!\[[^\]]*\]\(\s*(?:https?:)?//[^)]+|\bimport\s*\(?\s*["']https?://[^"']+""",
    re.IGNORECASE,
)
WARNING = re.compile(r"\b\w*Warning: ")


@dataclass(frozen=True)
class Run:
    """A notebook after it ran."""

    notebook: nbformat.NotebookNode
    seconds: float
    error: str | None  # the cell that raised, and what; the cells after it did not run

    def streams(self) -> Iterator[tuple[str, str]]:
        """(name of the stream, its text) of all cells."""
        for cell in self.notebook.cells:
            for output in cell.get("outputs", []):
                if output.output_type == "stream":
                    yield output.name, output.text

    def shown(self) -> Iterator[tuple[str, str]]:
        """(MIME type, text) of all that prose and outputs put on the page."""
        for cell in self.notebook.cells:
            if cell.cell_type == "markdown":
                yield "text/markdown", cell.source
            for output in cell.get("outputs", []):
                for kind, data in output.get("data", {}).items():
                    if isinstance(data, str):
                        yield kind, data

    def warnings(self) -> list[str]:
        """What a learner would take for trouble: any text on standard error, and any Python warning."""
        return [text for name, text in self.streams() if name == "stderr" or WARNING.search(text)]

    def external_references(self) -> list[str]:
        """Addresses outside this machine that a browser would fetch to show this page."""
        kinds = ("text/markdown", "text/html", "image/svg+xml", "application/javascript")
        return [match[0] for kind, text in self.shown() if kind in kinds for match in REFERENCE.finditer(text)]


def as_shown(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs as they stand on the page at the end: pieces of a stream joined, erased progress bars gone."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = "\n".join(map(after_returns, output.text.split("\n")))
    return [output for output in joined if output.output_type != "stream" or output.text.strip()]


def after_returns(line: str) -> str:
    """A line of a terminal after its carriage returns: what was written last stands there."""
    return line.rstrip("\r").rpartition("\r")[2].rstrip()


def run_notebook(path: Path) -> Run:
    """Run ``path`` in its own folder, by which the notebook's language is known; nothing is written to it."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        store_widget_state=False,  # a page then needs no widget manager, which would come from the network
        resources={"metadata": {"path": str(path.parent)}},
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != "S13_LANGUAGE"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        start, error = time.monotonic(), None
        try:
            # What cells write comes back as outputs; the rest is the kernel talking to a terminal about itself.
            client.execute(env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except CellExecutionError as raised:
            error = str(raised)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = as_shown(cell.outputs)
    return Run(notebook, time.monotonic() - start, error)
