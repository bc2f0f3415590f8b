# The crate `ibverbs` by itself: messages, writes, reads, atomics and refusals between two threads.
rdma link show "$RDMADEV/1" | grep 'state ACTIVE' || fail "$RDMADEV is not active"
timeout 120 verbs_check "$ADDRESS" || fail "verbs_check"
