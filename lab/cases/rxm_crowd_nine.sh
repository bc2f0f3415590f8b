# verbs;ofi_rxm: nine processes that talk to each other out of step, and three of them are killed.
export FI_LOG_LEVEL=warn
timeout 220 rxm_crowd 9 /tmp/crowd || fail "rxm_crowd"
