# Datagram endpoints of the provider verbs: of one process, of nine, and fi_pingpong.
export FI_LOG_LEVEL=warn
timeout 120 verbs_datagrams || fail "verbs_datagrams"
