# The guest is up: its shared folder, its clock, its network and the modules for faults.
uname -a
[ "$(id -u)" = 0 ] || fail "not root"
ping -c 2 -i 0.2 -W 5 "$PEER" || fail "no answer from $PEER"
tc qdisc add dev "$NETDEV" root netem delay 1ms || fail "no netem"
tc qdisc show dev "$NETDEV" | grep netem || fail "netem is not shown"
[ -w /dev/shm ] || fail "no /dev/shm"
