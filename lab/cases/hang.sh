# A script that does not end: the watchdog in the guest ends it.
sleep 100000
