# Crate ripstop over verbs;ofi_rxm: two processes that exchange messages and reach each other's memory. First without a device
# that is known: the error says what to do.
SYSFS_PATH=/nonexistent rdma_pair server >/tmp/none 2>&1 && fail "a server without a device"
grep -q 'rdma link add' /tmp/none || { cat /tmp/none; fail "no advice"; }
rdma_pair server --interface "$RDMADEV" >/tmp/server 2>&1 &
server=$!
within 60 grep -q 'client ' /tmp/server || { cat /tmp/server; fail "the server says no address"; }
address=$(sed -n 's/.*the other side: client //p' /tmp/server)
# The client's device is found by the usual discovery.
timeout 60 rdma_pair client "$address" >/tmp/client 2>&1 || { cat /tmp/server /tmp/client; fail "the client"; }
wait $server || { cat /tmp/server; fail "the server"; }
cat /tmp/server /tmp/client
for side in server client; do
    grep -q "provider verbs;ofi_rxm, domain $RDMADEV" /tmp/$side || fail "the $side used another provider"
    grep -q 'all right' /tmp/$side || fail "the $side"
done
