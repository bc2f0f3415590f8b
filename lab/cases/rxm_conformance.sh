# The conformance suite on reliable datagrams over the RDMA device, by the Rust object model.
conformance --rust --provider 'verbs;ofi_rxm' --ep rdm --node "$ADDRESS" --slow 10 --jobs 2 --lists /usr/local/share/required \
    || fail "conformance"
