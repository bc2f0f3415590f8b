# Debian's programs for verbs move bytes between two ends on one device.
rdma link show
rdma link show "$RDMADEV/1" | grep -q 'state ACTIVE' || fail "$RDMADEV is not active"
ibv_devinfo -d "$RDMADEV" || fail "ibv_devinfo"

# rdma_cm connects, and the client checks what comes back. The server's status is not looked at: it depends on which
# end disconnects first.
rping -s -a "$ADDRESS" -C 20 &
rping_client() { rping -c -a "$ADDRESS" -C 20 -V -S 1000; }
within 20 rping_client || fail "rping"
echo "rping: 20 messages of 1000 bytes, checked"
