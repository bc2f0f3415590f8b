# MPICH over verbs;ofi_rxm: ranks that only start and end, ten times; pairs and neighbours that exchange messages out of step;
# random messages; windows; hundreds of long messages before the one that has their receives posted.
export LD_LIBRARY_PATH=/opt/ripstop/lib FI_PROVIDER='verbs;ofi_rxm' FI_LOG_LEVEL=warn
export MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_DEBUG_SUMMARY=1
hostname guest
echo "127.0.0.1 guest" >>/etc/hosts

# mpi RANKS PROGRAM...: it reaches its end, each rank on our library and this provider, and nobody is warned of anything.
mpi() {
    _ranks=$1
    shift
    rm -f /tmp/loaded.*
    LD_DEBUG=libs LD_DEBUG_OUTPUT=/tmp/loaded timeout 120 mpiexec -launcher fork -n "$_ranks" "$@" >/tmp/mpi.log 2>&1 \
        || { tail -n 20 /tmp/mpi.log; fail "$_ranks ranks of $*"; }
    grep ' right$' /tmp/mpi.log || { tail -n 20 /tmp/mpi.log; fail "$_ranks ranks of $* do not say that they are right"; }
    grep -q 'libfabric provider: verbs;ofi_rxm ' /tmp/mpi.log || fail "$1 took another provider"
    _proven=$(grep -l 'calling init: /opt/ripstop/lib/libfabric.so' /tmp/loaded.* | wc -l)
    [ "$_proven" = "$_ranks" ] || fail "$_proven of $_ranks ranks of $1 loaded our library"
    if grep '<warn>' /tmp/mpi.log; then fail "$1 was warned"; fi
}

for _ in 1 2 3 4 5 6 7 8 9 10; do
    mpi 2 neighbours
done
mpi 2 neighbours 1048576
mpi 4 neighbours 1048576
mpi 7 neighbours 32768
mpi 4 traffic 10 1048576
mpi 4 onesided 65536
mpi 3 many unexpected 2000
mpi 3 many backwards 300 2500
