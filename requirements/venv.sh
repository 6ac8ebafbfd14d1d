#!/bin/sh
# usage: venv.sh DIRECTORY [PYTHON]    a virtual environment with Python 3.11 or newer
set -eu
directory=$1
wanted=${2:-}

new_enough() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [ -z "$wanted" ]; then
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 python; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            wanted=$candidate
            break
        fi
    done
fi
if [ -z "$wanted" ] || ! new_enough "$wanted"; then
    echo "dsh-acp needs Python 3.11 or newer with the venv module; ${wanted:-none of python3," \
        "python3.11 … python3.14, python} is that." >&2
    echo "Debian and Ubuntu: apt-get install python3 python3-venv.  macOS: brew install python." >&2
    echo "Then run make again, or name one: make PYTHON=/path/to/python3.12 …" >&2
    exit 1
fi
# An environment whose interpreter is gone or too old is made anew; a good one is kept.
if ! { [ -x "$directory/bin/python" ] && new_enough "$directory/bin/python"; }; then
    rm -rf "$directory"
    "$wanted" -m venv "$directory"
fi
