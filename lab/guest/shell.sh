# Read by the interactive shell of `cargo xtask lab shell`. That is busybox's, for its line editing; it would prefer
# busybox's own `ip`.
. /lab/functions.sh
alias ip=/usr/bin/ip
echo "node $NODE, $NETDEV has $ADDRESS${RDMADEV:+, $RDMADEV}; 'exit' ends the guest, and so does Ctrl-A X"
