set -e
cd "$(mktemp -d)"
echo one two > a; echo three > b
[ "$(bash "$OLDPWD/wordcount.sh" a b)" = 3 ]
