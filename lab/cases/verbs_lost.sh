# The provider verbs: connections end while receives are posted, one of two devices is removed while messages flow by
# both, and the interface of the other goes down.
export FI_LOG_LEVEL=warn
ip link add w0 type veth peer name w1 && ip link set w1 up && ip addr add 10.8.0.1/24 dev w0 && ip link set w0 up \
    && rdma link add rxe1 type rxe netdev w0 || fail "no second device"
timeout 120 verbs_lost "$RDMADEV" rxe1 w0 2>/tmp/log || { cat /tmp/log; fail "verbs_lost"; }
cat /tmp/log
for line in "device rxe1: port 1 is down" "device $RDMADEV has failed or is being removed"; do
    [ "$(grep -c "$line" /tmp/log)" = 1 ] || fail "the log does not say once: $line"
done
