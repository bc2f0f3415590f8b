# The conformance suite on datagram endpoints over the RDMA device, by the Rust object model and through the C interface.
for way in --rust "--lib /opt/ripstop/lib/libfabric.so.1"; do
    # Two words or one.
    conformance $way --provider verbs --ep dgram --node "$ADDRESS" --slow 4 --jobs 2 --lists /usr/local/share/required \
        || fail "conformance $way"
done
