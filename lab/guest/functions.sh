# Functions for the scripts of guests.

# Says why, and ends the script.
fail() {
    echo "FAIL: $*"
    exit 1
}

# The seconds since the guest was booted.
uptime_seconds() {
    read -r _uptime _ </proc/uptime
    echo "${_uptime%.*}"
}

# within SECONDS COMMAND...: until the command succeeds; fails when the time is over.
within() {
    _end=$(($(uptime_seconds) + $1))
    shift
    until "$@" 2>/dev/null >&2; do
        [ "$(uptime_seconds)" -lt $_end ] || return 1
        sleep 0.1
    done
}

# listening PORT: whether a program listens on this TCP port.
listening() {
    ss -Hltn "sport = :$1" | grep -q .
}

# listening_cm: whether a program listens for connections by rdma_cm.
listening_cm() {
    rdma resource show cm_id | grep -q LISTEN
}

# barrier NAME SECONDS: until every node has come here.
barrier() {
    : >"/lab/share/barrier.$1.$LAB_NODE"
    within "$2" test -e "/lab/share/barrier.$1.$((3 - LAB_NODE))" \
        || fail "the other node has not come to barrier $1 within $2 s"
}

# rping_server: answers 20 messages of 1000 bytes; -P: those of one client after the other.
rping_server() {
    rping -s -a "$ADDRESS" -S 1000 -C 20 "$@" &
    within 60 listening_cm || fail "rping does not listen"
}

# rping_client ADDRESS [SECONDS]: sends 20 messages of 1000 bytes and compares what comes back. rping's exit status is 0
# also when its server has failed, so the messages are counted.
rping_client() {
    timeout "${2:-60}" rping -c -a "$1" -S 1000 -C 20 -V -v >/tmp/rping.log 2>&1
    _count=$(grep -c '^ping data: rdma-ping-' /tmp/rping.log)
    echo "rping $1: $_count of 20 messages came back"
    [ "$_count" = 20 ] || { cat /tmp/rping.log; return 1; }
}

# pingpong PROVIDER TYPE COUNT DOMAIN SIZE...: our fi_info lists the domain, and our fi_pingpong checks the data of so many
# messages of each size within a guest.
pingpong() {
    _provider=$1 _type=$2 _count=$3 _domain=$4
    shift 4
    fi_info -p "$_provider" -t "FI_EP_$(echo "$_type" | tr a-z A-Z)" | grep "domain: $_domain" \
        || fail "fi_info does not list $_domain"
    for _size in "$@"; do
        fi_pingpong -p "$_provider" -e "$_type" -c -I "$_count" -S "$_size" >/tmp/server.log 2>&1 &
        _server=$!
        within 60 listening 47592 || fail "the server does not listen"
        timeout 60 fi_pingpong -p "$_provider" -e "$_type" -c -I "$_count" -S "$_size" "$ADDRESS" \
            || { cat /tmp/server.log; fail "$_size bytes"; }
        wait $_server || { cat /tmp/server.log; fail "the server of $_size bytes"; }
    done
}
