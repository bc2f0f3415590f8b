# Debian's programs for verbs move bytes between two ends on one device.
rdma link show "$RDMADEV/1" | grep 'state ACTIVE' || fail "$RDMADEV is not active"
ibv_devinfo -d "$RDMADEV" || fail "ibv_devinfo"
rping_server
rping_client "$ADDRESS" || fail "rping"
