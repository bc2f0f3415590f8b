# Two guests: messages still arrive while packets are lost, and none do while the link is down.
if [ "$NODE" = 1 ]; then
    rping_server -P
    barrier ready 60
    barrier lossy 120
    ip link set "$NETDEV" down
    barrier down 60
    barrier refused 120
    exit 0
fi
barrier ready 60
tc qdisc add dev "$NETDEV" root netem loss 10% delay 2ms || fail "no netem"
rping_client "$PEER" || fail "rping with lost packets"
tc -s qdisc show dev "$NETDEV" | tee /tmp/netem.log
grep -q 'dropped 0' /tmp/netem.log && fail "no packet was lost"
barrier lossy 120
barrier down 60
rping_client "$PEER" 15 && fail "rping over a link that is down"
barrier refused 120
