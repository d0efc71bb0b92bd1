"""What the site offers for download, as a reader's browser gets it from a server."""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import downloads
import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = downloads.wheel_name(ROOT)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.site
def test_every_notebook_that_the_site_offers_can_get_the_library(site: Path) -> None:
    offered = [*site.glob("_sources/**/*.ipynb"), *site.glob("_downloads/**/*.ipynb")]
    without = [
        path.name
        for path in offered
        if downloads.CELL_ID not in {cell["id"] for cell in json.loads(path.read_text("utf-8"))["cells"]}
    ]
    assert without == []
    assert len(offered) >= len([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("assignments/release/*.ipynb")])
    assert (site / "_static" / WHEEL).is_file()


@pytest.mark.site
def test_a_chapter_is_offered_in_plain_markdown(site: Path) -> None:
    """What Colab, VS Code and plain Jupyter show as it was typed would be noise: roles, directives, options, labels."""
    offered = sorted(site.glob("_sources/chapters/*.ipynb"))
    for path in offered:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        raw = re.findall(r"(?m)\{[\w:]+\}`|^(?:> )*`{3,}\{[\w-]+\}|^(?:> )*:\w[\w-]*:|^\([\w-]+\)=", text)
        assert raw == [], path.name
    assert len(offered) == len([*ROOT.glob("chapters/*.ipynb")])


@pytest.mark.site
@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("chapters/02_mdps.html", ".book-run a[href$='.ipynb']"),
        ("chapters/02_mdps.html", "a.page-link[href$='.ipynb']"),
        ("chapters/assignments.html", "table a[href$='01_mdps.ipynb']"),
    ],
)
def test_a_downloaded_notebook_knows_where_it_came_from(browser: Any, address: str, page: str, link: str) -> None:
    tab = browser.new_page()
    tab.goto(f"{address}/{page}")
    with tab.expect_download() as found:
        tab.locator(link).first.dispatch_event("click")
    text = Path(found.value.path()).read_text("utf-8")
    # a book that was built for an address names that one, and no other
    named = tab.locator("link[rel=canonical]").all()
    home = named[0].get_attribute("href").removesuffix(f"/{page}") if named else address
    tab.close()
    assert found.value.suggested_filename == ("02_mdps.ipynb" if "02" in page else "01_mdps.ipynb")
    cell = next(cell for cell in json.loads(text)["cells"] if cell["id"] == downloads.CELL_ID)
    assert f'"{home}/_static/{WHEEL}"' in "".join(cell["source"])
