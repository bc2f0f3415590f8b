# Sourced by init: the network of a guest, and its RDMA device. What scripts find in their environment:
#   NODE, NODES    which guest this is, and of how many
#   NETDEV         the network device that carries ADDRESS
#   ADDRESS, PEER  this node's address and that of the other one; with one node, they are the same
#   RDMADEV        the RDMA device on NETDEV, if there is one
#   OUT            a folder whose files come back
export NODE=$LAB_NODE NODES=$LAB_NODES NETDEV ADDRESS PEER RDMADEV OUT=/lab/share/out

ip link set lo up

# Nobody else has this guest's link-local addresses, which are GIDs of its RDMA device: without a second of looking
# for others they can be used at once.
for kind in all default; do
    echo 0 > "/proc/sys/net/ipv6/conf/$kind/accept_dad" || return 1
done

# One node has its address on one end of a veth pair: connections by rdma_cm do not work over lo.
if [ "$NODES" = 1 ]; then
    NETDEV=v0 ADDRESS=10.7.0.1 PEER=10.7.0.1
    modprobe veth && ip link add v0 type veth peer name v1 && ip link set v1 up || return 1
else
    NETDEV=eth0 ADDRESS=10.7.0.$NODE PEER=10.7.0.$((3 - NODE))
    modprobe virtio_net || return 1
    OUT=$OUT/$NODE
fi
ip addr add "$ADDRESS/24" dev "$NETDEV" && ip link set "$NETDEV" up || return 1
# A link takes a moment, and programs prefer an interface that runs.
within 30 grep -qE 'up|unknown' "/sys/class/net/$NETDEV/operstate" || return 1
mkdir -p "$OUT"

# The modules ask for these by the name of an algorithm, which busybox's modprobe does not resolve.
modprobe crc32_generic && modprobe crc32c_generic

case $LAB_RDMA in
    rxe | siw)
        RDMADEV=${LAB_RDMA}0
        case $LAB_RDMA in
            rxe) modprobe rdma_rxe ;;
            siw) modprobe siw ;;
        esac
        modprobe rdma_ucm && modprobe ib_uverbs \
            && rdma link add "$RDMADEV" type "$LAB_RDMA" netdev "$NETDEV" || return 1
        ;;
esac
[ "$NODES" = 1 ] || barrier up 60
