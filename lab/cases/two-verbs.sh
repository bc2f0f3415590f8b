# Two guests: rping from the second to the first.
if [ "$NODE" = 1 ]; then
    rping_server
    barrier ready 60
else
    barrier ready 60
    rping_client "$PEER" || fail "rping"
fi
barrier done 90
