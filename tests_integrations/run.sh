#!/bin/sh
# Runs the tests of one integration in its environment; the other arguments are pytest's.
set -eu
name=$1
shift
sh tests_integrations/environment.sh "$name"
exec ".venvs/$name/bin/python" -P -m pytest -c tests_integrations/pytest.ini \
  "tests_integrations/$(echo "$name" | tr - _)"* "$@"
