find . -type l -print0 | while IFS= read -r -d '' link; do
    target=$(: | readlink -f -- "$link") || continue
    case "$target" in /proc/*) exit 1 ;; esac
    for name; do
        case "$PWD/$name/" in "${target%/}"/*) exit 1 ;; esac
        case "${METACLAW_UNITTEST%/*}/tree/$name/" in "${target%/}"/*) exit 1 ;; esac
    done
done
