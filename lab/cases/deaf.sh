# A guest that does not end, and whose own watchdog is gone: the one outside ends it.
kill "$LAB_WATCHDOG"
sleep 100000
