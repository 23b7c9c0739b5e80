#!/bin/bash
# Visits one Debian system: debootstrap makes it once, and each visit has a fresh copy. `cargo xtask bare-roots` gives
# NAME, SUITE, PACKAGES, CACHE, TRANSCRIPT, FILES, and what visit.sh needs. What is said on standard error ends the visit.
set -euo pipefail
archive=$CACHE/$NAME.tar
mkdir -p "$CACHE"

enter() { # ROOT ARGS..: runs what ARGS say inside; what is left running ends with it
    unshare --mount --pid --fork --kill-child -- sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' sh "$@"
}

if [ ! -f "$archive" ]; then
    echo "$NAME: debootstrap makes $archive, which takes some minutes"
    rm -rf "$CACHE/$NAME.partial"
    debootstrap --variant=minbase "$SUITE" "$CACHE/$NAME.partial" >&2
    # debootstrap itself cannot order the hundreds of packages that npm is made of. Packages that are only recommended
    # stay away: pip recommends a compiler.
    enter "$CACHE/$NAME.partial" sh -ec "
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update
        apt-get -qq install --no-install-recommends $PACKAGES
        apt-get clean
        useradd --create-home --shell /bin/bash visitor" >&2
    tar -C "$CACHE/$NAME.partial" -cf "$archive.partial" .
    mv "$archive.partial" "$archive"
    rm -rf "$CACHE/$NAME.partial"
fi

root=$CACHE/$NAME
rm -rf "$root"
mkdir "$root"
trap 'rm -rf "$root"' EXIT
tar -C "$root" -xf "$archive"
cp $FILES "$root/srv"
# What this machine knows of its package index: pipx asks one for a newer pip, as this machine would.
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "$file" ] || cp "$file" "$root$file"
done
visit="INSTALL='$INSTALL' REMOVE='$REMOVE' UPSTREAM='$UPSTREAM' MODEL='$MODEL' TRAINER='$TRAINER' bash /srv/visit.sh 2>&1"
enter "$root" su --login visitor --command "$visit" > "$TRANSCRIPT"
