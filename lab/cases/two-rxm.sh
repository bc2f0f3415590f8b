# Two guests: fi_pingpong with reliable datagrams over their RDMA devices, data checked. Then the first kills the server under
# the client, which is told.
ping="fi_pingpong -p verbs;ofi_rxm -e rdm -c"
if [ "$NODE" = 1 ]; then
    $ping -I 20 -S 100000 &
    server=$!
    within 60 listening 47592 || fail "the server does not listen"
    barrier ready 60
    wait $server || fail "the server"
    $ping -I 1000000 -S 64 &
    server=$!
    within 60 listening 47592 || fail "the second server does not listen"
    barrier again 60
    sleep 3
    kill -9 $server
    barrier killed 60
else
    barrier ready 60
    $ping -I 20 -S 100000 "$PEER" || fail "the client"
    barrier again 60
    timeout 60 $ping -I 1000000 -S 64 "$PEER"
    status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "the client of a killed server ends with $status"
    barrier killed 60
fi
