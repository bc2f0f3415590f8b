# verbs;ofi_rxm: long messages from memory that is unmapped, mapped again and dropped between them; with registrations that are
# kept between transfers, without, and with the default.
export FI_LOG_LEVEL=info
for monitor in userfaultfd disabled default disabled; do
    case $monitor in
        default) unset FI_MR_CACHE_MONITOR ;;
        *) export FI_MR_CACHE_MONITOR=$monitor ;;
    esac
    timeout 60 rxm_kept "$RDMADEV" 2>/tmp/log >/tmp/out || { tail -20 /tmp/log; fail "rxm_kept with $monitor"; }
    sed "s/^/$monitor: /" /tmp/out
    kept=$(sed -n 's/.*registrations for transfers: \([0-9]*\) were there.*/\1/p' /tmp/log)
    grep -o 'registrations for transfers.*' /tmp/log
    case $monitor in
        # The kernels of the guests have no guard pages.
        userfaultfd | default) [ "${kept:-0}" -gt 100 ] || { grep ':mr:' /tmp/log; fail "few registrations were kept"; } ;;
        *) [ -z "$kept" ] || fail "registrations were kept" ;;
    esac
done
