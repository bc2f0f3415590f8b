# Two guests: rping from the second to the first.
ping -c 1 -W 10 "$PEER" || fail "no answer from $PEER"
if [ "$NODE" = 1 ]; then
    rping -s -a "$ADDRESS" -C 20 &
    barrier done 60
else
    rping_client() { rping -c -a "$PEER" -C 20 -V -S 1000; }
    within 40 rping_client || fail "rping"
    echo "rping: 20 messages of 1000 bytes, checked"
    barrier done 60
fi
