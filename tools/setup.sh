#!/usr/bin/env bash
# Make the virtual environment and install the pinned requirements. Called by make when the requirements changed.
#   bash tools/setup.sh .venv
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

runs() {  # a Python of the right version that can make virtual environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1
}

if [ -d "$venv" ] && ! runs "$venv/bin/python"; then
    echo "The environment in $venv does not run (moved, or another Python): making it anew."
    rm -rf "$venv"
fi
if [ ! -d "$venv" ]; then
    for candidate in ${BOOK_PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
        found=$(PATH="${PATH#*"$venv/bin:"}" command -v "$candidate" || true)
        if [ -n "$found" ] && runs "$found"; then break; fi
        found=
    done
    if [ -z "$found" ]; then
        echo "The book needs Python 3.11, 3.12 or 3.13 with the venv module, and none was found." >&2
        echo "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make BOOK_PYTHON=/path/to/python" >&2
        exit 1
    fi
    echo "Making the environment $venv with $found ($("$found" --version))."
    "$found" -m venv "$venv"
fi

echo "Installing the requirements into $venv: about 1.5 GB, some minutes the first time."
log=$venv/install.log
if ! "$venv/bin/python" -m pip install --progress-bar off -r requirements.txt 2>&1 | tee "$log" |
    sed -u -n -E 's/^Collecting ([^ ]+).*/  \1/p; s/^Installing collected packages.*/Copying the files into place./p'; then
    echo "The installation failed. What pip said last (all of it is in $log):" >&2
    grep -v '^ \|^Collecting\|^Looking\|is ignored: it is neither' "$log" | tail -n 15 >&2
    exit 1
fi
"$venv/bin/python" -m pip install --quiet --no-deps --editable .
echo "Ready: $("$venv/bin/python" --version), $("$venv/bin/python" -m pip list 2>/dev/null | tail -n +3 | wc -l) packages."
