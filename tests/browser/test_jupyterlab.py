"""Lessons in a real JupyterLab: they run, their widgets follow every control, and nothing leaves this machine."""

import re
import statistics
from contextlib import suppress

import pytest

pytest.importorskip("jupyterlab", reason="no jupyterlab: pip install -r requirements.txt")
pytest.importorskip("ipywidgets", reason="no ipywidgets: pip install -r requirements.txt")
pytest.importorskip("playwright.sync_api", reason="no playwright")
pytest.importorskip("numba", reason="no numba, so no SoftGPU for the lessons")

import nbformat
import playwright.sync_api as playwright

from s13lib.figures.quiz import progress_svg, result_html
from s13lib.widgets import buckets_widget, corruption_widget, ledger_widget, quiz_widget, simulator_widget
from tests.browser.jupyter_server import NOTEBOOKS, Lab, serve

METADATA = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
PATIENCE_MS = 60_000  # a hang, not a slow machine
TIMED_MOVES, FAST_PRESSES = 10, 30
SIZES = "1, 3, 9, 200"  # for the only text box, that of the buckets
# Console errors of JupyterLab's own, each with its reason.
ALLOWED_ERRORS = ()
EXPECTED_HTML = "html => { const e = document.createElement('div'); e.innerHTML = html; return e.innerHTML; }"
# From a key press to the frame that shows the changed picture.
STOPWATCH = """picture => {
  window.times = [];
  let pressed = null;
  document.addEventListener("keydown", () => { pressed = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => {
    if (pressed !== null) window.times.push(performance.now() - pressed);
    pressed = null;
  })).observe(picture, {childList: true, subtree: true});
}"""


@pytest.fixture(scope="module")
def server(chromium, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.fixture
def open_lab(server, chromium):
    context = chromium.new_context(viewport={"width": 1200, "height": 1000})
    labs = []

    def open_notebook(path):
        labs.append(Lab(server, context, path))
        return labs[-1]

    yield open_notebook
    context.close()
    server.shut_kernels_down()
    for lab in labs:
        assert [text for text in lab.errors if not any(re.search(known, text) for known in ALLOWED_ERRORS)] == []
        assert lab.outside == []


def run_lesson(open_lab, name, language):
    if not (NOTEBOOKS / "src" / f"{name}.py").exists():
        pytest.skip(f"lesson {name} is not written yet")
    assert (NOTEBOOKS / language / f"{name}.ipynb").exists(), "not built: run `python3 run.py notebooks`"
    lab = open_lab(f"{language}/{name}.ipynb")
    lab.run_all()
    assert lab.outputs("application/vnd.jupyter.stderr") == []  # errors, too
    return lab


def expect_html(page, place, html):
    """Wait until an element shows exactly this, as the browser itself would write it."""
    expected = page.evaluate(EXPECTED_HTML, html)
    same = "([element, html]) => element.innerHTML === html"
    with suppress(playwright.TimeoutError):
        page.wait_for_function(same, arg=[place.element_handle(), expected], timeout=PATIENCE_MS)
    assert place.inner_html() == expected


class Driver:
    """Moves a panel's controls in the page, and the same ones of a twin in this process: both must show the same."""

    def __init__(self, lab, root, twin):
        self.page, self.root, self.twin = lab.page, root, twin
        self.shown = [root.locator(f"> .widget-html:nth-last-child({at}) .widget-html-content") for at in (3, 2, 1)]

    def check(self):
        twin = self.twin
        pure = twin._render(twin.state, twin.language)
        assert pure == twin.rendered
        assert pure.svg.startswith("<svg")
        for place, widget in zip(self.shown, (twin.picture, twin.sentence, twin.numbers), strict=True):
            expect_html(self.page, place, widget.value)

    def row(self, name):
        shown = [c.name for c in self.twin.table.values() if c.kind != "hidden"]
        return self.root.locator("> .widget-box").first.locator("> *").nth(shown.index(name))

    def slide(self, name, times=1):
        """Press an arrow key on a slider, to the right as long as that moves it, then to the left."""
        self.row(name).locator(".noUi-handle").focus()
        slider = self.twin.controls[name]
        for _ in range(times):
            up = slider.value + slider.step <= slider.max
            self.page.keyboard.press("ArrowRight" if up else "ArrowLeft")
            slider.value += slider.step if up else -slider.step

    def fill(self, name):
        """Type into a slider's number box."""
        control, box = self.twin.table[name], self.twin.boxes[name]
        value = (control.low + control.high) / 3  # between two stops of the slider: the box takes any value
        box.value = round(value) if control.whole else round(value, 3)
        self.type(name, str(box.value))

    def type(self, name, text):
        place = self.row(name).locator("input")
        place.fill(text)
        place.press("Enter")

    def choose(self, name, value):
        options = self.twin.controls[name].options
        self.row(name).locator("select").select_option(index=[v for _, v in options].index(value))
        self.twin.controls[name].value = value

    def move_everything(self):
        """Every option of every list, every slider, box, switch and button; a check after each move."""
        controls = [c for c in self.twin.table.values() if c.kind != "hidden"]
        self.check()
        for control in sorted(controls, key=lambda c: c.kind != "dropdown"):  # a list may enable what follows
            name = control.name
            if control.kind == "dropdown":
                for value, *_ in control.options[::-1]:
                    self.choose(name, value)
                    self.check()
                self.choose(name, next(v for v, *_ in control.options if v != control.default))
            elif control.kind == "toggle":
                self.row(name).locator("input").click()
                self.twin.controls[name].value = not self.twin.controls[name].value
            elif control.kind == "text":
                self.type(name, SIZES)
                self.twin.controls[name].value = SIZES
            else:
                assert not self.twin.controls[name].disabled, name
                self.slide(name)
                self.check()
                self.fill(name)
            self.check()
        for name, button in self.twin.buttons.items():
            self.root.get_by_role("button", name=button.description, exact=True).click()
            self.twin.buttons[name].click()
            self.check()

    def reset_lists(self):
        for control in self.twin.table.values():
            if control.kind == "dropdown" and not self.twin.controls[control.name].disabled:
                self.choose(control.name, control.default)
        self.check()

    def time(self, name):
        """The median from slider to picture in ms; then many fast presses, which must settle on the right picture."""
        self.shown[0].evaluate(STOPWATCH)
        for _ in range(TIMED_MOVES):
            self.slide(name)
            self.check()
        times = self.page.evaluate("window.times")
        self.slide(name, FAST_PRESSES)
        self.check()
        return statistics.median(times)


def drive(lab, root, twin, slider, picture, capsys):
    root.scroll_into_view_if_needed(timeout=PATIENCE_MS)
    driver = Driver(lab, root, twin)
    driver.move_everything()
    driver.reset_lists()
    median = driver.time(slider)
    with capsys.disabled():
        print(f"\n{picture.stem}: {slider} to picture, median {median:.0f} ms of {TIMED_MOVES}")
    root.screenshot(path=picture)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_start_here(open_lab, tmp_path, language):
    lab = run_lesson(open_lab, "00_start_here", language)
    pictures = lab.page.locator(".jp-OutputArea-output svg[role=img]")
    assert pictures.count() >= 2
    pictures.first.scroll_into_view_if_needed()
    lab.page.screenshot(path=tmp_path / f"start-{language}.png")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("lesson", "widget", "slider"),
    [("04_buckets", buckets_widget, "budget_mib"), ("05_padding_bug", corruption_widget, "step")],
)
def test_lesson_with_a_widget(open_lab, tmp_path, capsys, lesson, widget, slider, language):
    lab = run_lesson(open_lab, lesson, language)
    root = lab.page.locator(".s13-scale-100")
    drive(lab, root, widget(language), slider, tmp_path / f"{lesson}-{language}.png", capsys)


@pytest.mark.parametrize(("widget", "slider"), [(simulator_widget, "launch_us"), (ledger_widget, "batch")])
def test_widget_of_a_lesson_not_run_here(server, open_lab, tmp_path, capsys, widget, slider):
    name = widget.__name__
    cell = nbformat.v4.new_code_cell(f"from s13lib.widgets import {name}\n{name}()")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=METADATA), server.root / "zh" / f"{name}.ipynb")
    lab = open_lab(f"zh/{name}.ipynb")
    lab.run_all()
    drive(lab, lab.page.locator(".s13-scale-100"), widget("zh"), slider, tmp_path / f"{name}.png", capsys)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_quiz_by_keyboard(open_lab, tmp_path, language):
    lab = run_lesson(open_lab, "08_quiz", language)
    page, root = lab.page, lab.page.locator(".s13-quiz")
    twin = quiz_widget(language=language)
    twin.restart()

    def check():
        for at, widget in enumerate((twin.progress, twin.question, twin.status, twin.feedback), start=1):
            expect_html(page, root.locator("> .widget-html").nth(at).locator(".widget-html-content"), widget.value)

    def press(button):
        """Tab to a button, press Enter, and do the same to the twin."""
        place = root.get_by_role("button", name=button.description, exact=True)
        for _ in range(20):
            if place.evaluate("e => e === document.activeElement"):
                break
            page.keyboard.press("Tab")
        else:
            raise AssertionError(f"Tab does not reach {button.description}")
        page.keyboard.press("Enter")
        button.click()
        check()

    page.keyboard.press("Escape")
    cell = page.locator(".jp-Cell", has=root)
    for _ in range(page.locator(".jp-Cell").count()):
        if "jp-mod-active" in cell.get_attribute("class"):
            break
        page.keyboard.press("ArrowUp")
    check()
    for number, question in enumerate(twin.questions):
        options = question.shuffled()
        wanted = [option.right for option in options].index(number != 0)  # the first one wrong, the others right
        press(twin.options[wanted])
        press(twin.main)
        if number == 0:
            page.screenshot(path=tmp_path / f"quiz-wrong-{language}.png")
        press(twin.main)
    answers = twin.state["answers"]
    assert len(answers) == len(twin.questions) == twin.score + 1
    assert twin.progress.value == progress_svg(twin.questions, answers, len(answers), language)
    assert twin.question.value == result_html(twin.questions, answers, language)
    page.screenshot(path=tmp_path / f"quiz-result-{language}.png")
