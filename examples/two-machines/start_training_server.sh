#!/bin/sh
# Starts the training server with the settings of a file.
#
#     start_training_server.sh [FILE] [more flags of metaclaw-trainer]
#
# FILE is training_server.env beside this script, if none is named. METACLAW_API_KEY, METACLAW_PORT and
# METACLAW_CHECKPOINT_DIR of the environment win over those of the file.
set -eu

here=$(dirname "$0")
file=$here/training_server.env
case ${1-} in
"" | -*) ;;
*)
    file=$1
    shift
    ;;
esac
if [ ! -r "$file" ]; then
    echo "$0: cannot read $file: copy $here/training_server.env and fill it in" >&2
    exit 2
fi

key=${METACLAW_API_KEY-} port=${METACLAW_PORT-} checkpoints=${METACLAW_CHECKPOINT_DIR-}
set -a
# A name without a slash would be looked for in PATH.
case $file in
*/*) . "$file" ;;
*) . "./$file" ;;
esac
METACLAW_API_KEY=${key:-${METACLAW_API_KEY-}}
METACLAW_PORT=${port:-${METACLAW_PORT-}}
METACLAW_CHECKPOINT_DIR=${checkpoints:-${METACLAW_CHECKPOINT_DIR-}}
set +a

if [ -z "${METACLAW_API_KEY-}" ]; then
    echo "$0: METACLAW_API_KEY is set neither in $file nor in the environment: whoever reaches the port could use and train the model" >&2
    exit 2
fi
# In a release archive the program lies in the folder above.
if [ -z "${METACLAW_TRAINER-}" ] && [ -x "$here/../metaclaw-trainer" ]; then
    METACLAW_TRAINER=$here/../metaclaw-trainer
fi
# Without a model, the first lora/create names it.
exec "${METACLAW_TRAINER:-metaclaw-trainer}" ${MODEL:+--model "$MODEL"} --host "${HOST:-127.0.0.1}" "$@"
