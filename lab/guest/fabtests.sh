#!/bin/sh
# fabtests.sh PROVIDER SET SECONDS: runs a set of the C project's fabtests on our library, for `cargo xtask fabtests`, which has
# put them into /usr/local/share/fabtests. What their runner says goes to $OUT/log; each test may take so many seconds.
readonly PLACE=/usr/local/share/fabtests
export PATH=$PLACE/stand-ins:$PLACE/bin:$PATH LD_LIBRARY_PATH=/opt/ripstop/lib

# The runner is a script for bash, which it looks for there.
ln -s /usr/local/bin/bash /bin/bash
# fi_av_test looks it up.
echo 'discard 9/tcp
discard 9/udp' >/etc/services
mkdir /tmp/fabtests && cd /tmp/fabtests || exit 1
: >"$OUT/log"
tail -f "$OUT/log" | grep -E '^(- name:|  result:)' &
bash "$PLACE/bin/runfabtests.sh" -v -T "$3" -t "$2" -p "$PLACE/bin" "$1" "$ADDRESS" "$ADDRESS" >"$OUT/log" 2>&1
# Its status counts the tests that failed, which the list may know.
grep -q '^# Total Pass' "$OUT/log"
