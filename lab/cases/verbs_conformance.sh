# The conformance suite on connected endpoints over the RDMA device, by the Rust object model.
conformance --rust --provider verbs --ep msg --node "$ADDRESS" --slow 4 --jobs 2 --lists /usr/local/share/required \
    || fail "conformance"
