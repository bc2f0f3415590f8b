# The conformance suite on reliable datagrams over the RDMA device, through the C interface.
conformance --lib /opt/ripstop/lib/libfabric.so.1 --provider 'verbs;ofi_rxm' --ep rdm --node "$ADDRESS" --slow 10 --jobs 2 \
    --lists /usr/local/share/required || fail "conformance"
