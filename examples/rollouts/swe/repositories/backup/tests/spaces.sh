set -e
cd "$(mktemp -d)"
mkdir in && echo one > "in/a b.txt" && echo two > in/c.txt
bash "$OLDPWD/backup.sh" in out
[ "$(cat "out/a b.txt")" = one ]
[ "$(cat out/c.txt)" = two ]
