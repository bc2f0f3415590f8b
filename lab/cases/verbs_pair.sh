# The provider verbs: two endpoints of one process, by its traits.
export FI_LOG_LEVEL=warn
timeout 120 verbs_pair || fail "verbs_pair"
