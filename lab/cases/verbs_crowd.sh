# The provider verbs: nine processes, some of which are killed.
export FI_LOG_LEVEL=warn
timeout 60 verbs_crowd || fail "verbs_crowd"
