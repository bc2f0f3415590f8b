# Two guests: messages still arrive while packets are lost, and not while the link is down.
if [ "$NODE" = 1 ]; then
    rping -s -P -a "$ADDRESS" &
    barrier lossy 120
    ip link set "$NETDEV" down
    barrier down 60
    barrier refused 120
    exit 0
fi
rping_client() { rping -c -a "$PEER" -C 20 -V -S 1000; }
tc qdisc add dev "$NETDEV" root netem loss 5% delay 2ms || fail "no netem"
within 60 rping_client || fail "rping with lost packets"
tc -s qdisc show dev "$NETDEV"
barrier lossy 120
barrier down 60
timeout 20 rping -c -a "$PEER" -C 1 && fail "rping over a link that is down"
barrier refused 60
