"""Agents of NIXL that write to each other and read from each other by its plugin LIBFABRIC (run by interop/run).

Arguments: processes, rounds, then sizes in bytes. In each round, and with each size, every process writes what it alone has to the
next one, which is notified, and reads it back from there.
"""

import multiprocessing
import sys
import time

import nixl_cu12._bindings as nixl
import numpy

PATIENCE = 60


def pattern(rank, turn, size):
    return ((numpy.arange(size, dtype=numpy.uint32) * 7 + rank * 31 + turn * 13) % 251).astype(numpy.uint8)


def described(kind, buffer, offset, size):
    found = kind(nixl.DRAM_SEG)
    found.addDesc((buffer + offset, size, 0))
    return found


def transfer(agent, backend, peer, operation, mine, theirs, note):
    request = agent.createXferReq(operation, mine, theirs, peer, note, [backend])
    state, end = agent.postXferReq(request), time.monotonic() + PATIENCE
    while state == nixl.NIXL_IN_PROG:
        assert time.monotonic() < end, "a transfer does not end"
        state = agent.getXferStatus(request)
    assert state == nixl.NIXL_SUCCESS, state
    agent.releaseXferReq(request)


def process(rank, ranks, rounds, sizes, inboxes, barrier):
    agent = nixl.nixlAgent(f"agent {rank}", nixl.nixlAgentConfig())
    backend = agent.createBackend("LIBFABRIC", agent.getPluginParams("LIBFABRIC")[0])
    most = max(sizes)
    # The first half is what this process sends and reads, the second what it is sent.
    buffer = numpy.zeros(2 * most, dtype=numpy.uint8)
    at = buffer.ctypes.data
    registered = nixl.nixlRegDList(nixl.DRAM_SEG)
    registered.addDesc((at, 2 * most, 0, b""))
    agent.registerMem(registered, [backend])

    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    for other in {before, after}:
        inboxes[other].put((rank, agent.getLocalMD(), at))
    # Both, since whoever is notified must know by whom.
    known = {other: (agent.loadRemoteMD(metadata), there)
             for other, metadata, there in (inboxes[rank].get(timeout=PATIENCE) for _ in {before, after})}
    following, there = known[after]

    for turn in range(rounds):
        for size in sizes:
            mine = described(nixl.nixlXferDList, at, 0, size)
            theirs = described(nixl.nixlXferDList, there, most, size)
            buffer[:size] = pattern(rank, turn, size)
            note = f"{turn} {size}".encode()
            transfer(agent, backend, following, nixl.NIXL_WRITE, mine, theirs, note)
            notes, end = [], time.monotonic() + PATIENCE
            while not notes:
                assert time.monotonic() < end, f"no notification of {size} bytes has come in round {turn}"
                # That of a read has no words, if there is one.
                notes = [note for several in agent.getNotifs({}).values() for note in several if note]
            assert notes == [note], notes
            assert (buffer[most:most + size] == pattern(before, turn, size)).all(), "wrong bytes were written"
            buffer[:size] = 0
            transfer(agent, backend, following, nixl.NIXL_READ, mine, theirs, b"")
            assert (buffer[:size] == pattern(rank, turn, size)).all(), "wrong bytes were read"
            barrier.wait(PATIENCE)


def main():
    ranks, rounds, *sizes = map(int, sys.argv[1:])
    context = multiprocessing.get_context("spawn")
    inboxes, barrier = [context.Queue() for _ in range(ranks)], context.Barrier(ranks)
    children = [context.Process(target=process, args=(rank, ranks, rounds, sizes, inboxes, barrier)) for rank in range(ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        sys.exit(f"the processes ended with {[child.exitcode for child in children]}")
    print(f"nixl: {ranks} agents, {ranks * rounds * len(sizes)} writes and reads are right")


if __name__ == "__main__":
    main()
