"""The interactive figure with a live kernel: in JupyterLab a key moves the slider, the picture follows."""

import os
import secrets
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


explore(setup, update, gamma=(0.0, 1.0, 0.1), kind=["discounted", "averaged"], play="gamma", alt="Bars", live=True)
"""


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """JupyterLab on this machine only, with a home of its own; nothing of it is left afterwards."""
    folder = tmp_path_factory.mktemp("lab")
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    cells = [nbformat.v4.new_code_cell(FIRST), nbformat.v4.new_code_cell(SECOND)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, work / "figure.ipynb")
    stored = nbformat.v4.new_notebook(cells=[_stored_cell()], metadata={"kernelspec": kernel})
    nbformat.write(stored, work / "stored.ipynb")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "IPYTHON", "XDG_"))
    }
    env |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    env.pop("RLBOOK_STATIC", None)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={work}", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    trust = [sys.executable, "-m", "jupyter", "trust", str(work / "stored.ipynb")]
    subprocess.run(trust, env=env, check=True, capture_output=True)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, cwd=work, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", server, folder / "log")
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}.ipynb?token={token}"
    finally:
        _end(server)


def _stored_cell():
    """The last cell with its output as a committed chapter holds it: the static twin, no widget."""
    from rlbook_lib.explore import explore

    names = {"explore": explore}
    exec(FIRST + SECOND.replace("explore(setup", "shown = explore(setup"), names)
    output = nbformat.v4.new_output("execute_result", names["shown"]._repr_mimebundle_(), execution_count=2)
    return nbformat.v4.new_code_cell(SECOND, outputs=[output], execution_count=2)


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
    opened = browser.new_page(viewport={"width": 1200, "height": 1000})
    opened.set_default_timeout(PATIENCE * 1000)
    opened.goto(lab.format("figure"))
    _run_all(opened)
    yield opened
    opened.close()


def _run_all(page):
    """Run both cells by keyboard, once the kernel is there; a key that came too early is pressed again."""
    page.get_by_text("(ipykernel) | Idle").wait_for()
    for number in range(2):
        cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
        started = cell.locator(".jp-InputPrompt", has_not_text="[ ]:")
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
    page.locator(LIVE).wait_for()


LIVE = ".jp-OutputArea .jupyter-widgets .rlx-picture > svg"
STORED = ".jp-OutputArea .rlx:has(form) .rlx-picture > svg"


def _picture(page, where=LIVE):
    return page.locator(where).inner_html()


def _wait_until_changed(page, before, where=LIVE):
    page.wait_for_function(
        "([where, before]) => { const svg = document.querySelector(where);"
        "return svg && svg.innerHTML !== before; }",
        arg=[where, before],
    )


def test_a_key_on_the_live_slider_moves_the_picture(page):
    assert page.locator(".jp-OutputArea .widget-slider").count() >= 1, (
        "the widget is shown, not the static twin"
    )
    assert page.locator(".jp-OutputArea form.rlx-controls").count() == 0
    handle = page.locator(".jp-OutputArea .noUi-handle").first
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        before = _picture(page)
        handle.focus()
        page.keyboard.press(key)
        _wait_until_changed(page, before)
    page.get_by_text("gamma is 0.6").wait_for()


def test_a_word_changes_the_picture(page):
    before = _picture(page)
    page.locator(".jp-OutputArea .widget-radio input").nth(1).check()
    _wait_until_changed(page, before)


def test_the_play_button_moves_the_picture(page):
    page.locator(".jp-OutputArea .widget-radio input").nth(0).check()
    before = _picture(page)
    page.locator(".jp-OutputArea .widget-play button").first.click()
    _wait_until_changed(page, before)


def test_a_stored_output_works_without_running_anything(lab, page):
    """A committed, trusted notebook in JupyterLab: the twin's own controls move the picture."""
    page.goto(lab.format("stored"))
    slider = page.locator(".jp-OutputArea form.rlx-controls input[type=range]").first
    slider.wait_for()
    before = _picture(page, STORED)
    slider.focus()
    page.keyboard.press("ArrowRight")
    _wait_until_changed(page, before, STORED)
    assert slider.get_attribute("aria-valuetext") == "0.6"
