# `ripstop perf` over verbs;ofi_rxm: two processes that send messages, and that write and read memory.
for options in '' --rma '--rma --both'; do
    timeout 100 ripstop perf -p 'verbs;ofi_rxm' --pairs 1 --sizes 8,20K,1M --iterations 32 --json $options >/tmp/report 2>/tmp/errors \
        || { cat /tmp/errors; fail "ripstop perf $options"; }
    grep -q '"provider": "verbs;ofi_rxm"' /tmp/report || { cat /tmp/report; fail "another provider"; }
    grep -q '"median"' /tmp/report || { cat /tmp/report; fail "nothing was measured"; }
done
ripstop perf -p 'verbs;ofi_rxm' --pairs 1 --sizes 8,20K,1M --iterations 32 || fail "a table"
