#!/bin/sh
# Finds a Python that is new enough and hands over to tools/setup.py, which
# makes .venv. PYTHON=/path/to/python names one instead of searching.
cd "$(dirname "$0")/.." || exit 1

oldest='3.11'
# The versions that are tested, newest first; then whatever there is.
candidates='python3.13 python3.12 python3.11 python3 python
            python3.16 python3.15 python3.14'

# What a Python says of itself: "3.11 yes" (it can make an environment) or
# "3.11 no"; nothing where it does not run. Written so that any Python, even
# 2.7, can answer.
ask() {
    "$1" -c '
import sys
try:
    import ensurepip, venv
    able = "yes"
except ImportError:
    able = "no"
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], able))
' 2>/dev/null
}

new_enough() {
    [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge "${oldest#*.}" ]
}

# A finished environment needs no search.
if [ -z "$PYTHON" ] && [ -x .venv/bin/python ] &&
        .venv/bin/python tools/setup.py --ready 2>/dev/null; then
    exit 0
fi

if [ -n "$PYTHON" ]; then
    candidates=$PYTHON
fi
too_old=''
no_venv=''
set -f
[ -n "$PYTHON" ] && set -- "$PYTHON" || set -- $candidates
set +f
for python in "$@"; do
    answer=$(ask "$python") || continue
    [ -n "$answer" ] || continue
    version=${answer% *}
    if ! new_enough "$version"; then
        too_old="$too_old
    $python is Python $version"
    elif [ "${answer#* }" = no ]; then
        no_venv="$no_venv
    $python is Python $version"
        package="python$version-venv"
    else
        exec "$python" tools/setup.py
    fi
done

exec >&2
if [ -n "$no_venv" ]; then
    echo "make: this Python cannot make an environment: its venv or ensurepip is missing.$no_venv
On Debian and Ubuntu they are a package of their own:
    apt install $package"
elif [ -n "$too_old" ]; then
    echo "make: Lamina needs Python $oldest or newer; found only$too_old
Install a newer one from your system's packages or from python.org."
elif [ -n "$PYTHON" ]; then
    echo "make: PYTHON=$PYTHON does not run. It must be a Python $oldest or newer."
    exit 1
else
    echo "make: Lamina needs Python $oldest or newer; no python3 was found on PATH.
Install one from your system's packages or from python.org."
fi
echo "If you have another Python, name it:
    make setup PYTHON=/path/to/python3"
exit 1
