# Our fi_info and fi_pingpong with reliable datagrams over the RDMA device, with data checked: messages at once, of one packet,
# and announced.
pingpong 'verbs;ofi_rxm' rdm 10 "$RDMADEV" 64 16384 16385 2097152
