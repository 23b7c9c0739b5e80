set -e
[ "$(bash wordcount.sh)" = 0 ]
