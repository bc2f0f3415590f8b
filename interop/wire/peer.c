/*
 * One side of a conversation over whichever libfabric.so.1 the linker finds. interop/jobs/wire.py starts two of
 * them, on two libraries, and carries addresses from one to the other:
 *
 *   says   LIB version path         the library
 *          ADDR hex                 where it can be reached
 *          STARTED                  the script may kill somebody now
 *          DONE text, ENDED text    the work is done, or ended with an error as it should; exit status 0
 *          ERROR text               exit status 1
 *   hears  PEER hex                 where the other one can be reached
 *          GO                       the other one is there again
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

const struct work works[] = {
	{ "msg", ping_pong, false, PLAIN },        { "tagged", ping_pong, true, PLAIN },
	{ "inject", ping_pong, false, INJECT },    { "tagged-inject", ping_pong, true, INJECT },
	{ "data", ping_pong, false, DATA },        { "tagged-data", ping_pong, true, DATA },
	{ "delivery", ping_pong, false, DELIVERY }, { "tagged-delivery", ping_pong, true, DELIVERY },
	{ "iov", ping_pong, false, IOV },          { "tagged-iov", ping_pong, true, IOV },
	{ "late", late, false, DELIVERY },         { "tagged-late", late, true, DELIVERY },
	{ "stream", stream, false, PLAIN },        { "tagged-stream", stream, true, PLAIN },
	{ "multi", multi, false, PLAIN },          { "peek", peek, true, PLAIN },
	{ "drain", drain, false, PLAIN },          { "tagged-drain", drain, true, PLAIN },
	{ "stuck", stuck, true, PLAIN },           { "await", await, true, PLAIN },
	{ "restart", restart, false, PLAIN },
	{ "rma", one_sided, false, PLAIN },        { "rma-inject", one_sided, false, INJECT },
	{ "rma-data", one_sided, false, DATA },    { "rma-delivery", one_sided, false, DELIVERY },
	{ "rma-iov", one_sided, false, IOV },      { "atomics", atomics, false, PLAIN },
	{ 0 },
};

static const struct work *work_named(const char *name)
{
	for (const struct work *w = works; w->name; w++)
		if (!strcmp(w->name, name))
			return w;
	fail("no work is called %s", name);
}

static struct options read_options(int argc, char **argv)
{
	struct options opt = { .provider = "tcp", .type = FI_EP_RDM, .node = "127.0.0.1", .work = "msg",
		.largest = 4u << 20, .injected = SIZE_MAX, .seconds = 120 };
	int letter;

	while ((letter = getopt(argc, argv, "P:csrmvAxwa:p:l:i:t:")) != -1) {
		switch (letter) {
		case 'P': opt.provider = optarg; break;
		case 'c': opt.type = FI_EP_MSG; break;
		case 's': opt.server = true; break;
		case 'r': opt.shared_rx = true; break;
		case 'm': opt.rma = true; break;
		case 'v': opt.rma = opt.virtual_addr = true; break;
		case 'A': opt.atomic = true; break;
		case 'x': opt.context = true; break;
		case 'w': opt.wait = true; break;
		case 'a': opt.node = optarg; break;
		case 'p': opt.service = optarg; break;
		case 'l': opt.largest = strtoul(optarg, NULL, 0); break;
		case 'i': opt.injected = strtoul(optarg, NULL, 0); break;
		case 't': opt.seconds = (unsigned)atoi(optarg); break;
		default: exit(2);
		}
	}
	if (optind < argc)
		opt.work = argv[optind];
	return opt;
}

/*
 * P: provider (else tcp), c: connected endpoints (else connectionless), s: server, r: shared receive context, m: RMA, v: RMA by virtual
 * address, A: atomics, x: a context of a scalable endpoint, w: blocking waits,
 * a: own address, p: own port, l: largest message, i: largest that is injected, t: seconds; then the work.
 */
int main(int argc, char **argv)
{
	static struct side side;
	const struct work *work;

	side.opt = read_options(argc, argv);
	work = work_named(side.opt.work);
	signal(SIGPIPE, SIG_IGN);
	side_open(&side);
	work->run(&side, work);
	/* Neither side leaves before both are done, and until then each still answers the other. */
	while (!poll(&(struct pollfd){ .fd = 0, .events = POLLIN }, 1, 0))
		progress(&side);
	hear("GO");
	side_close(&side);
	return 0;
}
