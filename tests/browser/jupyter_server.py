"""A JupyterLab of this environment on a free port of 127.0.0.1, on a copy of the notebooks, and its pages."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
START_SECONDS, RUN_SECONDS = 90, 300  # a hang, not a slow machine
SETTINGS = {
    # No question whether to fetch news: it would lie over the notebook.
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell stays in the page, so that all outputs can be looked at.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
# Each cell has its number and the kernel has been idle for a second: a folded cell shows no number.
FINISHED = """() => {
  if (document.querySelector('[data-mime-type="application/vnd.jupyter.stderr"]')) return true;  // an error's text
  const prompts = [...document.querySelectorAll(".jp-CodeCell .jp-InputArea-prompt")].map(p => p.textContent);
  const idle = document.querySelector("#jp-main-statusbar").textContent.includes("| Idle");
  const done = idle && prompts.length > 0 && prompts.every(text => /^\\[\\d+\\]:/.test(text));
  window.doneSince = done ? window.doneSince ?? performance.now() : undefined;
  return done && performance.now() - window.doneSince > 1000;
}"""


@dataclass(frozen=True)
class Server:
    """A server that runs: where, its token, and the folder that it shows."""

    url: str
    token: str
    root: Path

    def request(self, path, method="GET"):
        headers = {"Authorization": f"token {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers, method=method)) as reply:
            return reply.read()

    def shut_kernels_down(self):
        for kernel in json.loads(self.request("/api/kernels")):
            self.request(f"/api/kernels/{kernel['id']}", "DELETE")


@contextmanager
def serve(folder):
    """A server on a copy of the notebooks in ``folder``, where all that it writes goes too."""
    root, config = folder / "notebooks", folder / "config"
    for language in ("en", "zh"):
        shutil.copytree(NOTEBOOKS / language, root / language, ignore=shutil.ignore_patterns(".*"))
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", secrets.token_hex(16), root)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={root}"]
    command += [f"--IdentityProvider.token={server.token}"]
    environment = {name: value for name, value in os.environ.items() if name != "S13_LANGUAGE"}
    environment |= {
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "S13_PROGRESS": str(folder / "progress.json"),
    }
    log = folder / "server.log"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_for(server, process, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(server, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            server.request("/api/status")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


class Lab:
    """A notebook in a page of its own browser context and workspace, with all that it says and asks for."""

    def __init__(self, server, context, notebook):
        self.context, self.errors, self.outside = context, [], []
        self.page = context.new_page()
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        context.on("request", self._request)
        workspace = re.sub(r"\W", "-", notebook)
        self.page.goto(f"{server.url}/lab/workspaces/{workspace}/tree/{notebook}?token={server.token}")
        self.page.get_by_text(re.compile(r"\| Idle")).wait_for(timeout=START_SECONDS * 1000)

    def _request(self, request):
        if not re.match(r"(https?|wss?)://127\.0\.0\.1:|data:|blob:", request.url):
            self.outside.append(request.url)

    def run_all(self):
        """Run All Cells, with nothing left of an earlier run, and wait until each has run or one has failed."""
        self.page.locator(".lm-MenuBar").get_by_text("Edit", exact=True).click()
        self.page.get_by_text("Clear Outputs of All Cells", exact=True).click()
        self.page.locator(".lm-MenuBar").get_by_text("Run", exact=True).click()
        self.page.get_by_text("Run All Cells", exact=True).click()
        self.page.wait_for_function(FINISHED, timeout=RUN_SECONDS * 1000)

    def outputs(self, kind):
        """The texts of all outputs of a MIME type."""
        return self.page.locator(f'.jp-OutputArea-output[data-mime-type="{kind}"]').all_inner_texts()
