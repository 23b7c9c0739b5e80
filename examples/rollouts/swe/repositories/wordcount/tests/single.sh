set -e
cd "$(mktemp -d)"
echo one two > a
[ "$(bash "$OLDPWD/wordcount.sh" a)" = 2 ]
