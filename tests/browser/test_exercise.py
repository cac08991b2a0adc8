"""An exercise in a real JupyterLab, from the stub to full points, typed by hand."""

import shutil

import pytest

pytest.importorskip("jupyterlab", reason="no jupyterlab: pip install -r requirements.txt")
pytest.importorskip("playwright.sync_api", reason="no playwright")
pytest.importorskip("numba", reason="no numba, so no SoftGPU for the exercises")

from s13lib.grading.manifest import exercises
from tests.browser.jupyter_server import Lab, serve
from tools.build_exercises import built_path, read_source
from tools.notebook_source import Code

EXERCISE = next(one for one in exercises() if one.name == "two_lanes")
ERROR = "application/vnd.jupyter.stderr"  # how JupyterLab shows an error's text
SAID = {
    "en": ("5a is not right yet: case 1 of", "the stub is still there", " is right: "),
    "zh": ("5a：第 1 组输入", "还是原来的占位代码", " 正确："),
}


@pytest.fixture(scope="module")
def server(chromium, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


def type_into(lab, part, text):
    """Replace what stands in a part's answer cell, as a person would."""
    cell = lab.page.locator(".jp-CodeCell", has_text=f"{part}: write").first
    cell.scroll_into_view_if_needed()
    cell.locator(".cm-content").click()
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.insert_text(text)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_from_the_stub_to_full_points(chromium, server, tmp_path, language):
    notebook = built_path(EXERCISE, "exercises", language)
    shutil.copy(notebook, server.root / language / notebook.name)
    context = chromium.new_context(viewport={"width": 1200, "height": 1000})
    try:
        lab = Lab(server, context, f"{language}/{notebook.name}")
        lab.run_all()
        (shown,) = lab.outputs(ERROR)
        wrong, stub, right = SAID[language]
        assert shown.startswith(wrong)
        assert stub in shown
        assert "Traceback" not in shown
        lab.page.screenshot(path=tmp_path / f"stub-{language}.png")
        for cell in read_source(EXERCISE):
            if isinstance(cell, Code) and cell.part not in (None, "setup"):
                type_into(lab, cell.part, cell.text)
        lab.run_all()
        assert lab.outputs(ERROR) == []
        said = "\n".join(lab.outputs("application/vnd.jupyter.stdout"))
        for part in EXERCISE.parts:
            assert f"{part.key}{right}" in said
        row = next(line for line in said.splitlines() if line.endswith(EXERCISE.title.in_(language)))
        assert f"{EXERCISE.points}/{EXERCISE.points}" in row
        assert row.count("✓") == len(EXERCISE.parts)
        lab.page.screenshot(path=tmp_path / f"solved-{language}.png")
        assert lab.outside == []
    finally:
        context.close()
        server.shut_kernels_down()
