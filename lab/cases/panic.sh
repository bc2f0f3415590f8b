# The kernel dies: no status is told, and the run does not wait.
echo c >/proc/sysrq-trigger
sleep 100000
