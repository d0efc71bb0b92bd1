"""Where the book is hosted: links that appear when a setting names the place, and the dates of the pages.

* ``book_repository`` names the repository, as ``https://github.com/owner/name``; the environment variable
  ``BOOK_REPOSITORY`` goes before it. Then each page has a link to its source for an edit, and each notebook one that
  opens it on Binder. Without it there is neither.
* ``html_baseurl`` (``baseurl`` below ``html`` in ``_config.yml``) is the address of the site; ``BOOK_URL`` goes before it.
  Then each page names its canonical address and a picture for shared links, ``sitemap.xml`` lists all of them, notebooks know
  where the library is, and, for a repository on GitHub, notebooks have a link to Colab. It opens the copies in the branch
  ``gh-pages``, which can install the library. Without it no page names an address.
* The date at the foot of a page is that of the last commit that changed its source. Without git, in a folder that git does
  not know, and in a clone without its history, there is none.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError
from sphinx.util import logging

LOG = logging.getLogger(__name__)

REPOSITORY = re.compile(r"https://(?P<host>github|gitlab)\.com/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?")
SITE = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
BRANCH = "main"  # where an edit goes, and what Binder opens
SITE_BRANCH = "gh-pages"  # holds the built site; .github/workflows/book.yml writes it


# ---------------------------------------------------------------- the two settings


def setting(variable: str, value: str, pattern: re.Pattern[str], name: str, expected: str) -> re.Match[str] | None:
    """The variable of the environment if it is set, otherwise the value of the configuration; None where both are empty.

    Raises:
        ConfigError: neither empty nor of the expected form; names where it came from.
    """
    source, text = (variable, os.environ[variable]) if os.environ.get(variable) else (name, value or "")
    if not text:
        return None
    if not (found := pattern.fullmatch(text)):
        raise ConfigError(f"{source} is {text!r}; expected {expected}, or nothing")
    return found


def read_settings(app: Sphinx, config: Config) -> None:
    """Check both settings, and keep them for the pages and for the descriptions for shared links."""
    expected = "an address such as https://owner.github.io/name/"
    site = setting("BOOK_URL", config.html_baseurl, SITE, "html_baseurl", expected)
    if site:
        config.html_baseurl = site[0].rstrip("/") + "/"
        config.ogp_site_url = config.html_baseurl
        config.ogp_image = "_static/readme.png"
    expected = "an address such as https://github.com/owner/name (or gitlab.com)"
    app.book_place = setting("BOOK_REPOSITORY", config.book_repository, REPOSITORY, "book_repository", expected)  # type: ignore[attr-defined]


def colab_address(repository: re.Match[str], page: str) -> str:
    """Where Colab opens the copy of a notebook that the site has, whose first code cell gets the library."""
    return f"https://colab.research.google.com/github/{repository['owner']}/{repository['name']}/blob/{SITE_BRANCH}/_sources/{page}.ipynb"


def add_places(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """For the templates: where the source of a page can be edited, and where a notebook runs."""
    repository = app.book_place  # type: ignore[attr-defined]
    if not repository or doctree is None:
        return
    host, owner, name = repository["host"], repository["owner"], repository["name"]
    source = Path(app.env.doc2path(page)).relative_to(app.srcdir).as_posix()
    below = "-/edit" if host == "gitlab" else "edit"
    places = [("Edit", f"https://{host}.com/{owner}/{name}/{below}/{BRANCH}/{source}")]
    if source.endswith(".ipynb"):
        binder = "gh" if host == "github" else "gl"
        path = f"{owner}/{name}" if host == "github" else quote(f"{owner}/{name}", safe="")
        places.append(("Binder", f"https://mybinder.org/v2/{binder}/{path}/{BRANCH}?urlpath=lab/tree/{source}"))
        if host == "github" and app.config.html_baseurl:
            places.append(("Colab", colab_address(repository, page)))
    context["places"] = places


def drop_half_address(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Shared links want whole addresses: where the site's is not known, none is said."""
    if not app.config.html_baseurl:
        kept = [line for line in context.get("metatags", "").split("\n") if 'property="og:url"' not in line]
        context["metatags"] = "\n".join(kept)


def write_sitemap(app: Sphinx, error: Exception | None) -> None:
    """For search engines: every page with its address and, where it is known, its date."""
    if error or app.builder.format != "html" or not app.config.html_baseurl:
        return
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">']
    for page in sorted(app.env.found_docs):
        day = app.book_dates.get(Path(app.env.doc2path(page)).relative_to(app.srcdir).as_posix())  # type: ignore[attr-defined]
        date = f"<lastmod>{day}</lastmod>" if day else ""
        lines.append(f"<url><loc>{app.config.html_baseurl}{quote(app.builder.get_target_uri(page))}</loc>{date}</url>")
    (Path(app.outdir) / "sitemap.xml").write_text("\n".join([*lines, "</urlset>", ""]), "utf-8")


# ---------------------------------------------------------------- the dates


def git(folder: Path, *arguments: str) -> str:
    """What git says in a folder.

    Raises:
        OSError: there is no git.
        subprocess.CalledProcessError: git refuses, as in a folder that it does not know; holds what it said.
    """
    command = ["git", "-c", "core.quotepath=off", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def dates(folder: Path) -> dict[str, str]:
    """The date of the last commit of each file below a folder, by its path there; empty where git cannot say."""
    try:
        if git(folder, "rev-parse", "--is-shallow-repository").strip() == "true":
            LOG.info("pages carry no dates: this clone lacks its history")
            return {}
        said = git(folder, "log", "--format=@%cs", "--name-only", "--relative", "--", ".")
    except (OSError, subprocess.CalledProcessError) as error:
        LOG.info("pages carry no dates: %s", getattr(error, "stderr", "").strip() or error)
        return {}
    found: dict[str, str] = {}
    day = ""
    for line in filter(None, said.splitlines()):
        if line.startswith("@"):
            day = line[1:]
        else:
            found.setdefault(line, day)  # the newest commit comes first
    return found


def read_dates(app: Sphinx) -> None:
    app.book_dates = dates(Path(app.srcdir))  # type: ignore[attr-defined]


def add_date(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """At the foot of a page that has a source: when that changed last."""
    if doctree is not None:
        path = Path(app.env.doc2path(page)).relative_to(app.srcdir).as_posix()
        context["last_updated"] = app.book_dates.get(path)  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("book_repository", "", "html")
    app.connect("config-inited", read_settings, priority=400)
    app.connect("builder-inited", read_dates)
    app.connect("html-page-context", add_date)
    app.connect("html-page-context", add_places)
    app.connect("html-page-context", drop_half_address, priority=990)
    app.connect("build-finished", write_sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
