# verbs;ofi_rxm: one of two devices is removed while messages flow by both.
export FI_LOG_LEVEL=warn
ip link add w0 type veth peer name w1 && ip link set w1 up && ip addr add 10.8.0.1/24 dev w0 && ip link set w0 up \
    && rdma link add rxe1 type rxe netdev w0 || fail "no second device"
timeout 120 rxm_lost "$RDMADEV" rxe1 2>/tmp/log || { cat /tmp/log; fail "rxm_lost"; }
cat /tmp/log
[ "$(grep -c "device $RDMADEV has failed or is being removed" /tmp/log)" = 1 ] || fail "the log does not name the device"
