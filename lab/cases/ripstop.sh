# Our own programs, on tcp and shm within a guest.
fi_info -p tcp | head -n 3 | grep -q 'provider: tcp' || fail "fi_info shows no tcp"
fi_info -p shm | head -n 3 | grep -q 'provider: shm' || fail "fi_info shows no shm"
for provider in tcp shm; do
    fi_pingpong -p "$provider" -e rdm -I 100 -S 4096 &
    server=$!
    within 60 listening 47592 || fail "$provider: the server does not listen"
    fi_pingpong -p "$provider" -e rdm -I 100 -S 4096 127.0.0.1 || fail "$provider: the client"
    wait $server || fail "$provider: the server"
done
