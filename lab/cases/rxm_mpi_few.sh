# MPICH over verbs;ofi_rxm, by the C interface: nine ranks with two connections each at most, as long as others have nothing to
# do. They exchange messages with others in turn, with pauses, and then all to all: connections end by agreement and are made
# again, and nothing is lost.
export LD_LIBRARY_PATH=/opt/ripstop/lib FI_PROVIDER='verbs;ofi_rxm' FI_LOG_LEVEL=info FI_RIPSTOP_RXM_MAX_CONNECTIONS=2
export MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_DEBUG_SUMMARY=1
hostname guest
echo "127.0.0.1 guest" >>/etc/hosts
timeout 150 mpiexec -launcher fork -n 9 partners >/tmp/mpi.log 2>&1 || { grep -v '<info>' /tmp/mpi.log | tail -n 30; fail "partners"; }
grep ' right$' /tmp/mpi.log || fail "the ranks do not say that they are right"
grep -q 'libfabric provider: verbs;ofi_rxm ' /tmp/mpi.log || fail "MPICH took another provider"
if grep '<warn>' /tmp/mpi.log; then fail "it was warned"; fi
ended=$(grep -c 'the connection ends, as there are many' /tmp/mpi.log)
echo "$ended ends of connections"
# Each of four rounds has nine connections of its own, of which those before it end; each end is told on both sides.
[ "$ended" -ge 36 ] || fail "few connections have ended"
