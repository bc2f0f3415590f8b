# The conformance suite on connected endpoints over the RDMA device, through the C interface.
conformance --lib /opt/ripstop/lib/libfabric.so.1 --provider verbs --ep msg --node "$ADDRESS" --slow 4 --jobs 2 \
    --lists /usr/local/share/required || fail "conformance"
