# verbs;ofi_rxm: six processes that talk to each other out of step with two connections each at most, as long as others
# have nothing to do, and two of them are killed. Connections end by agreement and are made again, and nothing is lost.
export FI_LOG_LEVEL=info FI_RIPSTOP_RXM_MAX_CONNECTIONS=2
timeout 100 rxm_crowd 6 /tmp/crowd 2 2>/tmp/log || { grep -v '<info>' /tmp/log | tail -50; fail "rxm_crowd"; }
ended=$(grep -c 'the connection ends, as there are many' /tmp/log)
echo "$ended ends of connections"
# Of 15 connections each round leaves six at most, and each end is told on both sides.
[ "$ended" -ge 36 ] || fail "few connections have ended"
