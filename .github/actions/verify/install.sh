#!/bin/sh
# envlock from the checkout that this action is part of, in an environment of its own.
#
# ACTION_PATH: the action's folder. ENVIRONMENT: the folder to make.
set -eu

python3 -m venv "$ENVIRONMENT"
"$ENVIRONMENT/bin/pip" install --quiet --disable-pip-version-check "$ACTION_PATH/../../.."
"$ENVIRONMENT/bin/envlock" --version
