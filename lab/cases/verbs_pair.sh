# The provider verbs: two endpoints of one process, by its traits.
export FI_LOG_LEVEL=warn
# When a queue pair fails, rxe of 6.12 does not tell of the shared receive that it has begun to fill.
case $(uname -r) in
    6.12.*) set -- loses-begun ;;
    *) set -- ;;
esac
timeout 120 verbs_pair "$@" || fail "verbs_pair"
