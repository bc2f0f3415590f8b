# Our fi_info and fi_pingpong with datagrams over the RDMA device, with data checked.
pingpong verbs dgram 100 "$RDMADEV-dgram" 0 64 256 257 1024
