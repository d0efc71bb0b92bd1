#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image: it installs what grading needs and prepares the course.
# AUTOGRADER: the folder that Gradescope calls /autograder. GRADER_PYTHON: a Python to take instead of looking for one.
set -euo pipefail
home=${AUTOGRADER:-/autograder}

runs() {  # a Python of the right version that can make virtual environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${GRADER_PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null && runs "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

export DEBIAN_FRONTEND=noninteractive
if ! command -v bwrap >/dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends bubblewrap
fi
python=$(find_python)
if [ -z "$python" ]; then
    apt-get update
    for version in 3.13 3.12 3.11; do
        if apt-get install -y --no-install-recommends "python$version" "python$version-venv"; then break; fi
    done
    python=$(find_python)
fi
if [ -z "$python" ]; then
    echo "Grading needs Python 3.11, 3.12 or 3.13 with the venv module, and this image offers none: choose a newer base image." >&2
    exit 1
fi

"$python" -m venv "$home/venv"
"$home/venv/bin/python" -m pip install --progress-bar off -r "$home/source/requirements.txt"
chmod 700 "$home/source"  # the folder, not what is in it: the sandbox's user reads one file of it, which is mounted for it
cd "$home/source"
"$home/venv/bin/python" -m assignments.grader.gradescope prepare "$home"
