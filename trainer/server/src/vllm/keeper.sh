exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
( read -r _ <&3; kill -TERM "$server" ) &
keeper=$!
wait "$server"
status=$?
kill "$keeper" 2>/dev/null
exit "$status"
