# Functions for the scripts of guests.

# Says why, and ends the script.
fail() {
    echo "FAIL: $*"
    exit 1
}

# within SECONDS COMMAND...: until the command succeeds; fails when the time is over.
within() {
    _left=$(($1 * 10))
    shift
    until "$@" 2>/dev/null >&2; do
        [ $_left -gt 0 ] || return 1
        _left=$((_left - 1))
        sleep 0.1
    done
}

# listening PORT: whether a server listens on this TCP port.
listening() {
    ss -Hltn "sport = :$1" | grep -q .
}

# barrier NAME SECONDS: until every node has come here.
barrier() {
    : >"/lab/share/barrier.$1.$LAB_NODE"
    within "$2" test -e "/lab/share/barrier.$1.$((3 - LAB_NODE))" \
        || fail "the other node has not come to barrier $1 within $2 s"
}
