# The provider verbs: two endpoints of one process, by its traits.
export FI_LOG_LEVEL=warn
# When a queue pair fails, rxe of 6.12 does not tell of the shared receive that it has begun to fill.
case $(uname -r) in
    6.12.*) set -- loses-begun ;;
    *) set -- ;;
esac
timeout 120 verbs_pair "$@" 2>/tmp/log || { cat /tmp/log; fail "verbs_pair"; }
cat /tmp/log
# Neither rxe nor siw registers dma-bufs.
grep -q 'does not register 4096 bytes from 0x0 on of the dma-buf' /tmp/log || fail "no line tells of the dma-buf"
