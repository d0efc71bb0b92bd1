#!/usr/bin/env bash
# Make the virtual environment and install what the locks name. Called by make when these changed.
#   bash tools/setup.sh .venv
# BOOK_PYTHON names a Python; BOOK_TORCH says which build of torch: cpu, default, or auto (cpu where there is no NVIDIA GPU).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
cpu_builds=https://download.pytorch.org/whl/cpu

runs() {  # a Python of the right version that can make virtual environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 14)))' >/dev/null 2>&1
}

version() {
    "$1" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])' 2>/dev/null || echo "no Python that runs"
}

fail() {  # the reason, as pip gave it: its errors, or its last words where it calls nothing an error
    echo "The installation failed. What pip says (all of it is in $log):" >&2
    grep -E -A 12 '^ *(ERROR|error):' "$log" | grep -v '^--$' | tail -n 30 >&2 || tail -n 15 "$log" >&2
    if grep -q 'NewConnectionError\|ConnectTimeoutError\|NameResolutionError' "$log" && grep -q 'from versions: none' "$log"; then
        echo "In short: the package index cannot be reached from here." >&2
    elif misses=$(sed -n 's/^ERROR: No matching distribution found for //p' "$log" | tail -n 1) && [ -n "$misses" ]; then
        echo "In short: no file of $misses is for $("$venv/bin/python" --version) on this system." >&2
    fi
    exit 1
}

install() {  # pip install, with one line for each package and everything in the log
    "$venv/bin/python" -m pip install --progress-bar off "$@" 2>&1 | tee -a "$log" |
        sed -u -n -E 's/^Collecting ([^ ]+).*/  \1/p; s/^Installing collected packages.*/Copying the files into place./p'
}

if [ -d "$venv" ] && ! runs "$venv/bin/python"; then
    echo "The environment in $venv does not run (moved, or another Python): making it anew."
    rm -rf "$venv"
fi
if [ ! -d "$venv" ]; then
    seen=
    for candidate in ${BOOK_PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 python; do
        found=$(PATH="${PATH#*"$venv/bin:"}" command -v "$candidate" || true)
        if [ -n "$found" ] && runs "$found"; then break; fi
        [ -z "$found" ] || seen="$seen $found is $(version "$found");"
        found=
    done
    if [ -z "$found" ]; then
        echo "The book needs Python 3.11, 3.12, 3.13 or 3.14 with the venv module, and none was found.${seen:+ What is here:${seen%;}.}" >&2
        echo "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make BOOK_PYTHON=/path/to/python" >&2
        exit 1
    fi
    echo "Making the environment $venv with $found ($("$found" --version))."
    "$found" -m venv "$venv"
fi
log=$venv/install.log
: > "$log"

echo "Installing the packages of requirements.lock into $venv, some minutes the first time."
install --no-deps --require-hashes -r requirements.lock || fail  # the lock is whole; what it leaves out is left out (tools/lock.py)

torch=$(sed -n -E 's/^(torch==[^ ]+).*/\1/p' requirements.txt)
has_torch() {
    "$venv/bin/python" -c 'import sys, importlib.metadata as m; sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' "${torch#*==}" >/dev/null 2>&1
}
wants_cpu() {  # only on Linux are there two builds; elsewhere the default one is small
    [ "$(uname -s)" = Linux ] || return 1
    case ${BOOK_TORCH:-auto} in
        cpu) ;;
        default) return 1 ;;
        auto) [ ! -e /proc/driver/nvidia/version ] && ! nvidia-smi -L >/dev/null 2>&1 ;;
        *) echo "BOOK_TORCH is $BOOK_TORCH; expected cpu, default or auto" >&2; exit 2 ;;
    esac
}
if ! has_torch && wants_cpu; then
    echo "Installing the CPU build of $torch: about 0.2 GB to load. (With support for GPUs: make BOOK_TORCH=default.)"
    install --retries 1 --extra-index-url "$cpu_builds" -c constraints.txt "$torch+cpu" ||
        echo "The CPU build is not to be had here ($(grep -E '^ERROR:' "$log" | tail -n 1)): taking the default build, several GB." >&2
fi
if ! has_torch; then
    install -c constraints.txt "$torch" || fail
fi

install --no-deps --no-build-isolation --editable . || fail
echo "Ready: $("$venv/bin/python" --version), $("$venv/bin/python" -m pip list 2>/dev/null | tail -n +3 | wc -l) packages, $(du -sh "$venv" | cut -f1)."
