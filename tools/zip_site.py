"""Put the built site into one file, _build/rlbook.zip: unpacked anywhere, rlbook/index.html opens the book, offline.

    python tools/zip_site.py

The same site gives the same bytes: names in order, one date and one mode for all files.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
FOLDER = "rlbook"
DATE = (2020, 1, 1, 0, 0, 0)
LEFT_OUT = {".buildinfo", ".complete"}  # marks of the build, which readers do not need


def zip_site(site: Path, file: Path) -> int:
    """Write the files of a site below one folder of a zip file.

    Args:
        site: folder of the built site.
        file: the zip file to write; one that is there is replaced.

    Returns:
        The number of files in it.

    Raises:
        FileNotFoundError: the folder holds no built site.
    """
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"site is {site}, which has no index.html; expected a built book: run `make book`")
    paths = {
        path.relative_to(site).as_posix(): path
        for path in site.rglob("*")
        if path.is_file() and path.name not in LEFT_OUT
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for name, path in sorted(paths.items()):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", DATE)
            entry.create_system = 3  # Unix, on every system, because the mode of the file is one of Unix
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return len(paths)


def main() -> int:
    file = ROOT / "_build" / "rlbook.zip"
    try:
        count = zip_site(SITE, file)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: {count} files, {file.stat().st_size / 1e6:.1f} MB; unpack it and open {FOLDER}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
