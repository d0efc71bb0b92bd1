"""The book in JupyterLab as `make lab` opens it: figures live and stored, copies of chapters, nothing asked, nothing changed."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import psutil
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import execute_notebooks  # noqa: E402
import lab_copy  # noqa: E402

CHAPTER = ROOT / "chapters" / "10_ppo.ipynb"
SAVED = ROOT / "chapters" / "01_what_is_rl.ipynb"  # a light one: Jupyter draws all of it
YOUR_TURN = {  # what a lesson's own function returns, what a reader writes instead, what the picture then says one fine step on
    "09_trpo": (
        "1 / (1 + np.exp(-theta))",
        "0.5 + np.arctan(theta) / np.pi",
        "A step of length 1.00 from θ = 0.1 costs 0.1296 nats.",
    ),
    "11_preferences": (
        "1 / (1 + np.exp(-margin))",
        "0.05 + 0.9 / (1 + np.exp(-margin))",
        "Margin +2.1: C is chosen with probability 0.852",
    ),
}
PATIENCE = 120  # seconds for anything that a busy machine may delay

FIRST = """\
from matplotlib import pyplot as plt

from rlbook_lib.explore import explore
from rlbook_lib.figures import use_style

use_style()
"""
SECOND = """\
def setup():
    figure, ax = plt.subplots(figsize=(5, 2.5))
    ax.set(xlim=(-0.5, 5.5), ylim=(0, 1.05), xlabel="step k", ylabel="weight")
    return ax.bar(range(6), [1] * 6)


def update(bars, gamma, kind):
    for step, bar in enumerate(bars):
        bar.set_height(gamma**step if kind == "discounted" else 1 / (1 + step))
    return f"gamma is {gamma}"


explore(setup, update, gamma=(0.0, 1.0, 0.1), kind=["discounted", "averaged"], play="gamma", alt="Bars")
"""
THIRD = """\
explore(setup, update, gamma=(0.0, 0.999, 0.001), kind=["discounted", "averaged"], play="gamma", alt="Bars", live=True)
"""


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """JupyterLab on this machine only, with a home of its own; nothing of it is left afterwards."""
    folder = tmp_path_factory.mktemp("lab")
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    cells = [nbformat.v4.new_code_cell(source) for source in (FIRST, SECOND, THIRD)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, work / "figure.ipynb")
    book = lab_copy.Book()
    for name in (CHAPTER.stem, "10_ppo_deeper", *YOUR_TURN):
        lab_copy.write_notebook(CHAPTER.with_name(f"{name}.ipynb"), work, book)
    for name in YOUR_TURN:
        _keep_your_turn(work / f"{name}.ipynb")
    lab_copy.write_settings(folder / "settings")
    whole = folder / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    whole.parent.mkdir()
    whole.write_text('{"windowingMode": "none"}')  # all cells are drawn, also those that are not seen yet
    shutil.copy(SAVED, work / "chapter.ipynb")
    execute_notebooks.main(["--only-form", str(work / "chapter.ipynb")])

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON", "XDG_"))}
    env |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    env["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    env.pop("RLBOOK_STATIC", None)
    options = {
        "ServerApp": {"ip": "127.0.0.1", "port": port, "port_retries": 0, "root_dir": str(work)},
        "IdentityProvider": {"token": token},
        "LabApp": {"extension_manager": "readonly"},
    }
    (folder / "options.json").write_text(json.dumps(options))
    command = [
        sys.executable,
        *"-m jupyterlab --no-browser --allow-root --config".split(),
        str(folder / "options.json"),
    ]
    trust = [sys.executable, "-m", "jupyter", "trust", *map(str, work.glob("*.ipynb"))]
    subprocess.run(trust, env=env, check=True, capture_output=True)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, cwd=work, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", server, folder / "log")
        yield Lab(work, f"http://127.0.0.1:{port}", token)
    finally:
        _end(server)


def _keep_your_turn(path):
    """Of a lesson's code the imports, the picture's cell and the reader's own: Jupyter need not draw the other pictures."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (number,) = [n for n, cell in enumerate(code) if "live=True" in cell.source]
    notebook.cells = [code[0], *code[number - 1 : number + 1]]
    nbformat.write(notebook, path)


class Lab:
    """A running JupyterLab: its folder and addresses."""

    def __init__(self, folder, address, token):
        self.folder, self.address, self.token = folder, address, token

    def open(self, page, name):
        """A notebook alone in the window, once its kernel is there."""
        page.goto(f"{self.address}/lab/tree/{name}.ipynb?token={self.token}&reset")
        page.get_by_text("(ipykernel) | Idle").wait_for()

    def end_kernels(self):
        """What a restart of the computer does to the widgets."""
        for session in self._ask("GET", "sessions"):
            self._ask("DELETE", f"sessions/{session['id']}")

    def _ask(self, method, what):
        request = urllib.request.Request(f"{self.address}/api/{what}?token={self.token}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _wait_for(address, server, log):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    pytest.fail("JupyterLab did not start: " + log.read_text(errors="replace")[-2000:])


def _end(server):
    """Ask the server to stop, which stops its kernels; whatever is left of its family is ended by number."""
    family = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(10)
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        process.kill()
    _, alive = psutil.wait_procs(alive, timeout=10)
    assert alive == []


@pytest.fixture(scope="module")
def page(lab, browser):
    opened = browser.new_page(viewport={"width": 1200, "height": 1400})
    opened.set_default_timeout(PATIENCE * 1000)
    lab.open(opened, "figure")
    _run(opened, range(3))
    opened.locator(LIVE).wait_for()
    yield opened
    opened.close()


def _run(page, numbers):
    """Run code cells by keyboard, once the kernel is there; a key that came too early is pressed again."""
    for number in numbers:
        cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
        started = cell.locator(".jp-InputPrompt", has_not_text="[ ]:")
        if cell.locator(".jp-Placeholder-content").count():
            cell.locator(".jp-Placeholder-content").click()  # folded code
        too_early = page.locator(".jp-Dialog .jp-mod-accept")  # "Select Kernel": the key came before the kernel
        for _ in range(5):
            cell.locator(".cm-content").click()
            page.keyboard.press("Control+Enter")
            started.or_(too_early).first.wait_for()
            if started.count():
                break
            too_early.click()
        page.wait_for_function(
            "number => /\\d/.test(document.querySelectorAll('.jp-Notebook .jp-CodeCell')[number]"
            ".querySelector('.jp-InputPrompt').textContent)",
            arg=number,
        )


LIVE = ".jp-OutputArea .jupyter-widgets .rlx-picture > svg"
STORED = ".jp-OutputArea .rlx:has(form):not(.rlx-stored > *) .rlx-picture > svg"  # of the second cell
UNDER_LIVE = ".jp-OutputArea .rlx-stored .rlx-picture > svg"  # the stored view of the third cell


def _picture(page, where):
    return page.locator(where).inner_html()


def _moves(page, where, control, key):
    """A key on a control changes the picture."""
    before = _picture(page, where)
    control.focus()
    page.keyboard.press(key)
    page.wait_for_function(
        "([where, before]) => { const svg = document.querySelector(where);return svg && svg.innerHTML !== before; }",
        arg=[where, before],
    )


def test_a_key_on_the_live_sliders_moves_the_picture(page):
    """Numbers and words; and of the two views of a live figure one is seen."""
    assert page.locator(UNDER_LIVE).count() == 1 and not page.locator(UNDER_LIVE).is_visible()
    number, word = (page.locator(".jp-OutputArea .jupyter-widgets .noUi-handle").nth(index) for index in (0, 1))
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        _moves(page, LIVE, number, key)
    page.get_by_text(re.compile(r"^gamma is 0\.\d\d\d$")).locator("visible=true").wait_for()
    _moves(page, LIVE, word, "ArrowRight")
    page.get_by_text("averaged", exact=True).locator("visible=true").last.wait_for()
    _moves(page, LIVE, word, "ArrowLeft")


def test_the_play_button_moves_the_picture(page):
    before = _picture(page, LIVE)
    page.locator(".jp-OutputArea .widget-play button").first.click()
    page.wait_for_function(
        "([where, before]) => document.querySelector(where).innerHTML !== before", arg=[LIVE, before]
    )
    page.locator(".jp-OutputArea .widget-play button").nth(1).click()


def test_a_saved_notebook_shows_figures_that_move(lab, page):
    """Run, save, end the kernel, open again: no figure says "model not found", each moves by its own controls."""
    page.keyboard.press("Control+s")
    file = lab.folder / "figure.ipynb"
    _wait_until(lambda: file.read_text("utf-8").count('"text/html"') == 2)
    lab.end_kernels()
    lab.open(page, "figure")
    for picture in (STORED, UNDER_LIVE):
        page.locator(picture).wait_for()
        form = page.locator(picture.replace(" .rlx-picture > svg", " form"))
        _moves(page, picture, form.locator("input[type=range]"), "ArrowRight")
        _moves(page, picture, form.locator("input[type=radio]").first, "ArrowDown")
        assert form.locator("input[type=radio]").nth(1).is_checked()
    page.get_by_text("model not found").first.wait_for(state="hidden")
    assert page.locator(".jp-OutputArea").get_by_text("Error displaying widget").locator("visible=true").count() == 0


def _wait_until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("name", sorted(YOUR_TURN))
def test_a_readers_own_function_is_drawn_live(lab, page, name):
    """The lesson's figure, then a line changed in its cell: the live picture is another one, and moves in finer steps."""
    source = nbformat.read(lab.folder / f"{name}.ipynb", as_version=4).cells[2].source
    lab.open(page, name)
    _run(page, range(3))
    page.locator(LIVE).wait_for()
    books = _picture(page, LIVE)

    theirs, readers, said = YOUR_TURN[name]
    page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source.replace(theirs, readers))
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        "([where, before]) => { const svg = document.querySelector(where); return svg && svg.innerHTML !== before; }",
        arg=[LIVE, books],
    )
    assert page.locator(UNDER_LIVE).count() == 1 and not page.locator(UNDER_LIVE).is_visible()
    _moves(page, LIVE, page.locator(".jp-OutputArea .jupyter-widgets .noUi-handle").first, "ArrowRight")
    page.get_by_text(said).locator("visible=true").wait_for()


def test_a_copied_chapter_is_whole(lab, page):
    """No reference that Lab marks as unknown, solutions folded, mistakes in red, and no question on the screen."""
    lab.open(page, CHAPTER.stem)
    cells = page.locator(".jp-Notebook .jp-MarkdownCell")
    texts = sum(
        cell["cell_type"] == "markdown" for cell in json.loads((lab.folder / CHAPTER.name).read_text("utf-8"))["cells"]
    )
    _wait_until(lambda: cells.filter(has=page.locator(".myst")).count() == texts)
    assert page.locator(".jp-Notebook .myst .katex").count() > 50
    assert page.locator(".jp-Notebook .myst .text-yellow-600").all_inner_texts() == []
    assert page.locator(".jp-Notebook .katex-error").count() == 0
    folds = page.locator(".jp-Notebook .jp-MarkdownCell", has_text="Solution of exercise")
    assert folds.count() == len(re.findall("cells? hidden", "\n".join(folds.all_inner_texts()))) > 1
    assert page.locator("details.myst-admonition-danger").count() >= 1
    assert page.locator("details.myst-admonition-danger[open]").count() == 0
    assert page.locator(".Toastify__toast").count() == 0
    page.locator(".jp-Notebook a[href*='10_ppo_deeper.ipynb']").first.click()
    page.locator(".lm-TabBar-tabLabel", has_text="10_ppo_deeper.ipynb").first.wait_for()


def test_open_and_save_changes_nothing(lab, page):
    """A chapter in its normal form: only the version of Python may be another one."""
    file = lab.folder / "chapter.ipynb"
    before, written = file.read_text("utf-8"), file.stat().st_mtime_ns
    lab.open(page, "chapter")
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.keyboard.press("Control+s")
    _wait_until(lambda: file.stat().st_mtime_ns != written and file.read_text("utf-8").endswith("}\n"))
    version = re.compile(r'"version": "3\.[\d.]+"')
    assert version.sub("", file.read_text("utf-8")) == version.sub("", before)
