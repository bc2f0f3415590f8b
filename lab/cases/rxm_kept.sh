# verbs;ofi_rxm: long messages from memory that is unmapped, mapped again and dropped between them; with registrations that are
# kept between transfers, and without.
export FI_LOG_LEVEL=info
for monitor in userfaultfd disabled userfaultfd disabled; do
    FI_MR_CACHE_MONITOR=$monitor timeout 60 rxm_kept "$RDMADEV" 2>/tmp/log >/tmp/out || { tail -20 /tmp/log; fail "rxm_kept with $monitor"; }
    sed "s/^/$monitor: /" /tmp/out
    kept=$(sed -n 's/.*registrations for transfers: \([0-9]*\) were there.*/\1/p' /tmp/log)
    grep -o 'registrations for transfers.*' /tmp/log
    case $monitor in
        userfaultfd) [ "${kept:-0}" -gt 100 ] || { grep ':mr:' /tmp/log; fail "few registrations were kept"; } ;;
        *) [ -z "$kept" ] || fail "registrations were kept" ;;
    esac
done
