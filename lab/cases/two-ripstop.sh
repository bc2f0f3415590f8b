# Two guests: fi_pingpong over tcp from the second to the first.
if [ "$NODE" = 1 ]; then
    fi_pingpong -p tcp -e rdm -I 100 -S 4096 &
    server=$!
    within 60 listening 47592 || fail "the server does not listen"
    barrier ready 60
    wait $server || fail "the server"
else
    barrier ready 60
    fi_pingpong -p tcp -e rdm -I 100 -S 4096 "$PEER" || fail "the client"
fi
