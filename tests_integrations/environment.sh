#!/bin/sh
# Makes .venvs/NAME with the client, one agent framework and pytest; nothing of the service, whose
# package `agents` has the name of one of openai-agents. Called by `make test-integrations`.
set -eu
name=$1
lock=client/integrations/constraints-$name.txt
environment=.venvs/$name
[ -f "$lock" ] || { echo "there is no integration $name: $lock is missing" >&2; exit 2; }
for input in "$lock" client/pyproject.toml; do
  [ "$input" -nt "$environment/.installed" ] && rm -f "$environment/.installed"
done
[ -f "$environment/.installed" ] && exit 0
.venv/bin/uv venv --quiet --clear --python .venv/bin/python "$environment"
.venv/bin/uv pip install --quiet --python "$environment/bin/python" --require-hashes -r "$lock"
.venv/bin/uv pip install --quiet --python "$environment/bin/python" --no-deps -e client
touch "$environment/.installed"
