# verbs;ofi_rxm: four processes that talk to each other out of step, and one of them is killed.
export FI_LOG_LEVEL=warn
timeout 120 rxm_crowd 4 /tmp/crowd || fail "rxm_crowd"
