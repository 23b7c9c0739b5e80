#!/bin/bash
# The first visit of a new user to a system without a compiler. Each command is shown before it runs; the first that
# fails ends the visit. INSTALL, REMOVE, UPSTREAM, MODEL and TRAINER come from `cargo xtask bare-roots`.
set -o pipefail

say() { printf '\n$ %s\n' "$*"; }
do_() { say "$*"; eval "$*" || { echo "FAILED ($?): $*"; exit 1; }; }

for tool in cc gcc g++ clang rustc cargo; do
    if command -v "$tool"; then echo "FAILED: this root has a compiler"; exit 1; fi
done

began=$(date +%s%N)
do_ "$INSTALL"
# As a new terminal does.
. ~/.profile
do_ "echo sk-0123 | metaclaw setup --api-base $UPSTREAM --model $MODEL --api-key-stdin"
do_ metaclaw start -d
do_ "curl -sS 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{
  \"model\": \"default\", \"messages\": [{\"role\": \"user\", \"content\": \"Who are you? From now on, answer in one sentence.\"}]}'"
ended=$(date +%s%N)
printf '\n\nFIRST TURN after %d ms\n' $(((ended - began) / 1000000))

do_ metaclaw status
do_ metaclaw doctor
do_ metaclaw turns list
do_ metaclaw wishes list
if [ -n "$TRAINER" ]; then
    do_ metaclaw trainer install --from "$TRAINER"
    do_ metaclaw trainer status
fi
do_ metaclaw uninstall --yes
do_ "$REMOVE"
hash -r
# Nothing in a root collects processes that have ended (Z).
left=$(ls -A ~/.metaclaw 2>/dev/null; ps -eo stat,pid,args | grep '[m]etaclaw ' | grep -v '^Z'; command -v metaclaw)
if [ -n "$left" ]; then echo "FAILED: left behind: $left"; exit 1; fi
echo "nothing is left"
