# Our fi_info and fi_pingpong with datagrams over the RDMA device, with data checked.
fi_info -p verbs -t FI_EP_DGRAM | grep "domain: $RDMADEV-dgram" || fail "fi_info does not list $RDMADEV-dgram"
for size in 0 64 256 257 1024; do
    fi_pingpong -p verbs -e dgram -c -I 100 -S $size >/tmp/server.log 2>&1 &
    _server=$!
    within 60 listening 47592 || fail "the server does not listen"
    timeout 60 fi_pingpong -p verbs -e dgram -c -I 100 -S $size "$ADDRESS" || { cat /tmp/server.log; fail "$size bytes"; }
    wait $_server || { cat /tmp/server.log; fail "the server of $size bytes"; }
done
