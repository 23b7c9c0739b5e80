set -e
cd "$(mktemp -d)"
mkdir in && echo one > in/a.txt && echo x > in/b.csv
bash "$OLDPWD/backup.sh" in out
[ "$(ls out)" = a.txt ]
