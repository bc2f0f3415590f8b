# Our fi_info and fi_pingpong with reliable datagrams over the RDMA device, with data checked: messages at once, of one packet,
# and announced.
fi_info -p 'verbs;ofi_rxm' | grep "domain: $RDMADEV" || fail "fi_info does not list $RDMADEV"
for size in 64 16384 16385 2097152; do
    fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c -I 10 -S $size >/tmp/server.log 2>&1 &
    _server=$!
    within 60 listening 47592 || fail "the server does not listen"
    timeout 60 fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c -I 10 -S $size "$ADDRESS" \
        || { cat /tmp/server.log; fail "$size bytes"; }
    wait $_server || { cat /tmp/server.log; fail "the server of $size bytes"; }
done
