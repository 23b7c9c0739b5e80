#!/bin/bash
# Visits one Debian system without a compiler: debootstrap makes it once, and each visit has a fresh copy. NAME, SCRIPTS,
# DIST, VERSION, CACHE, TRANSCRIPT, UPSTREAM and MODEL come from `cargo xtask bare-roots`.
set -euo pipefail

trainer=$DIST/metaclaw-trainer-$VERSION-x86_64-linux.tar.gz
packages="ca-certificates curl procps"
case $NAME in
trixie-pipx)
    suite=trixie packages+=" python3-pip pipx" kind=whl
    install="pipx install FILE && pipx ensurepath"
    remove="pipx uninstall metaclaw"
    ;;
bookworm-npm)
    suite=bookworm packages+=" nodejs npm" kind=tgz
    install="npm install --global --prefix ~/.local FILE"
    remove="npm uninstall --global --prefix ~/.local metaclaw"
    ;;
bullseye-pip)
    suite=bullseye packages+=" python3-pip" kind=whl
    install="pip3 install --user FILE"
    remove="pip3 uninstall --yes metaclaw"
    # The training server's libraries are newer than this system's.
    trainer=
    ;;
esac
file=$(echo "$DIST/metaclaw-$VERSION"*".$kind")
if [ ! -f "$file" ]; then
    echo "$DIST has no such package: run \`cargo xtask dist proxy\` first" >&2
    exit 1
fi

enter() { # ROOT ARGS..: runs what ARGS say inside; what is left running ends with it
    unshare --mount --pid --fork --kill-child -- sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' sh "$@"
}

mkdir -p "$CACHE"
root=$CACHE/$NAME archive=$CACHE/$NAME.tar
rm -rf "$root"
trap 'rm -rf "$root"' EXIT
if [ ! -f "$archive" ]; then
    debootstrap --variant=minbase "$suite" "$root" >&2
    # debootstrap itself cannot order the hundreds of packages that npm is made of. Packages that are only recommended
    # stay away: pip recommends a compiler.
    enter "$root" sh -ec "
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update
        apt-get -qq install --no-install-recommends $packages
        apt-get clean
        useradd --create-home --shell /bin/bash visitor" >&2
    tar -C "$root" -cf "$archive.partial" .
    mv "$archive.partial" "$archive"
    rm -rf "$root"
fi

mkdir "$root"
tar -C "$root" -xf "$archive"
cp "$SCRIPTS/visit.sh" "$file" "$root/srv"
if [ -f "$trainer" ]; then
    cp "$trainer" "$DIST/SHA256SUMS" "$root/srv"
    trainer=/srv/$(basename "$trainer")
else
    trainer=
fi
# What this machine knows of its package index: pipx asks one for a newer pip, as this machine would.
for known in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "$known" ] || cp "$known" "$root$known"
done
install=${install/FILE/"/srv/$(basename "$file")"}
visit="INSTALL='$install' REMOVE='$remove' UPSTREAM='$UPSTREAM' MODEL='$MODEL' TRAINER='$trainer' bash /srv/visit.sh 2>&1"
enter "$root" su --login visitor --command "$visit" > "$TRANSCRIPT"
