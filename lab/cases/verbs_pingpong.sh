# Our fi_info and fi_pingpong over the RDMA device, with data checked.
pingpong verbs msg 100 "$RDMADEV" 0 64 256 257 65536
