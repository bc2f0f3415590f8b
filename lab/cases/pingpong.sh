# Messages, writes and reads on rxe, addressed by GID, without rdma_cm.
pair() {
    "$@" &
    _server=$!
    within 60 listening 18515 || fail "$1: the server does not listen"
    "$@" "$ADDRESS" || fail "$*"
    wait $_server || fail "the server of $*"
}
pair ibv_srq_pingpong -d "$RDMADEV" -g 1 -n 200 -s 4096
pair ibv_rc_pingpong -e -d "$RDMADEV" -g 1 -n 100 -s 4096 -c
pair ibv_ud_pingpong -e -d "$RDMADEV" -g 1 -n 100 -s 1024
pair ib_write_bw -d "$RDMADEV" -x 1 -n 100 -s 16384 -F
pair ib_read_bw -d "$RDMADEV" -x 1 -n 100 -s 16384 -F
