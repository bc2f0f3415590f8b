# A device is removed under endpoints of the conformance suite, by the Rust object model and through the C interface. There
# is another one: librdmacm keeps the last one open.
ip link add w0 type veth peer name w1 && ip link set w1 up && ip addr add 10.8.0.1/24 dev w0 && ip link set w0 up \
    && rdma link add rxe1 type rxe netdev w0 || fail "no second device"
export RIPSTOP_REMOVABLE="$RDMADEV"
for way in --rust "--lib /opt/ripstop/lib/libfabric.so.1"; do
    # Two words or one.
    conformance $way --provider verbs --ep msg --node "$ADDRESS" --slow 2 --unlisted --verbose --filter fi_eq/device_removed \
        >/tmp/said || { cat /tmp/said; fail "conformance $way"; }
    cat /tmp/said
    grep -q '^1 passed, 0 failed, 0 skipped' /tmp/said || fail "nothing was tried by $way"
    rdma link show "$RDMADEV/1" 2>/dev/null && fail "the device is still there"
    rdma link add "$RDMADEV" type rxe netdev "$NETDEV" || fail "no new device"
done
