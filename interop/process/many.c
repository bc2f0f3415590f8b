/*
 * Many at once.
 *
 *     many PROVIDER WHAT
 *
 * WHAT: `connections` 50 processes with 20 endpoints each, 1,000 connections to one endpoint of a server, all of them
 * there at the same time: each sends a message and gets its answer; `threads` 32 threads of one process, each with an
 * endpoint of its own on the domain they share, exchange messages with as many threads of another one.
 */
#include "end.h"

#define PROCESSES 50
#define EACH 20
#define THREADS 32
#define MESSAGES 40

static struct board {
	volatile int ready, peers, answered, done;
	struct name name[2][THREADS];
	struct name server, client[PROCESSES * EACH];
} *board;

static struct want want;

/* Another endpoint and queue on the domain of `end`. */
static void another(struct end *end, struct end *more)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };

	memset(more, 0, sizeof *more);
	check(fi_cq_open(end->domain, &cq_attr, &more->cq, NULL), "fi_cq_open");
	check(fi_endpoint(end->domain, end->info, &more->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(more->ep, &end->av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(more->ep, &more->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(more->ep), "fi_enable");
	more->av = end->av;
}

static void shut(struct end *more)
{
	more->av = NULL;
	close_end(more);
}

static void be_client(int number)
{
	struct end end, own[EACH];
	fi_addr_t to;

	await_word(&board->ready, 1, "the server's name");
	open_end(&want, &end);
	to = meet(&end, &board->server);
	for (int i = 0; i < EACH; i++) {
		another(&end, &own[i]);
		name_of(&own[i], &board->client[number * EACH + i]);
	}
	for (int i = 0; i < EACH; i++)
		send_one(&own[i], to, 1, (unsigned)(number * EACH + i), 200);
	for (int i = 0; i < EACH; i++)
		receive_one(&own[i], 2, (unsigned)(number * EACH + i), 300);
	__atomic_add_fetch(&board->answered, 1, __ATOMIC_SEQ_CST);
	/* All connections are there until all have their answers. */
	await_word(&board->answered, PROCESSES, "everybody's answers");
	for (int i = 0; i < EACH; i++)
		shut(&own[i]);
	close_end(&end);
	_exit(0);
}

static void connections(void)
{
	enum { ALL = PROCESSES * EACH };
	static unsigned char in[ALL][200], out[ALL][300];
	static struct fi_context2 receive[ALL], send[ALL];
	struct fi_cq_tagged_entry entry;
	int pid[PROCESSES], received = 0, sent = 0, n;
	struct end end;
	double limit = now() + 60;

	for (int i = 0; i < PROCESSES; i++) {
		pid[i] = spawn("client");
		if (!pid[i])
			be_client(i);
	}
	who = "server";
	open_end(&want, &end);
	for (unsigned i = 0; i < ALL; i++)
		POST(&end, fi_trecv(end.ep, in[i], 200, NULL, FI_ADDR_UNSPEC, 1ull << 32 | i, 0, &receive[i]));
	name_of(&end, &board->server);
	say(&board->ready, 1);
	while (sent < ALL) {
		if (now() > limit)
			fail("%d messages received and %d answers sent in 60 s", received, sent);
		n = poll_one(&end, &entry);
		if (n < 0)
			fail("an operation failed: %s", fi_strerror(-n));
		if (!n)
			continue;
		if (entry.flags & FI_SEND) {
			sent++;
			continue;
		}
		unsigned from = (unsigned)entry.tag;
		fi_addr_t to;

		received++;
		verify(in[from], 1, from, 200);
		to = meet(&end, &board->client[from]);
		fill(out[from], 2, from, 300);
		while ((n = (int)fi_tsend(end.ep, out[from], 300, NULL, to, 2ull << 32 | from, &send[from])) == -FI_EAGAIN)
			if (fi_cq_read(end.cq, NULL, 0) == -FI_EAVAIL)
				fail("an operation failed");
		check(n, "fi_tsend");
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		while (!waitpid(pid[i], &status, WNOHANG))
			poll_one(&end, &entry);
		if (status)
			fail("client %d ended with status %#x", i, (unsigned)status);
	}
	close_end(&end);
}

static struct end shared_end;
static int side;

static void *be_thread(void *argument)
{
	int number = (int)(intptr_t)argument;
	struct end own;
	fi_addr_t to;

	another(&shared_end, &own);
	name_of(&own, &board->name[side][number]);
	__atomic_add_fetch(&board->peers, 1, __ATOMIC_SEQ_CST);
	await_word(&board->peers, 2 * THREADS, "the other threads");
	to = meet(&own, &board->name[!side][number]);
	for (unsigned i = 0; i < MESSAGES; i++) {
		unsigned mine = (unsigned)(side * THREADS + number), other = (unsigned)(!side * THREADS + number);
		size_t len = i % 8 == 7 ? 50000 : i * 5;

		if (side) {
			send_one(&own, to, mine, i, len);
			receive_one(&own, other, i, len);
		} else {
			receive_one(&own, other, i, len);
			send_one(&own, to, mine, i, len);
		}
	}
	__atomic_add_fetch(&board->done, 1, __ATOMIC_SEQ_CST);
	await_word(&board->done, 2 * THREADS, "the end of the other threads");
	shut(&own);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	int pid = spawn("other process");

	side = !pid;
	if (pid)
		who = "one process";
	open_end(&want, &shared_end);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, be_thread, (void *)(intptr_t)i))
			fail("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	close_end(&shared_end);
	if (!pid)
		_exit(0);
	ends_well(pid, "the other process", 60);
}

int main(int argc, char **argv)
{
	struct rlimit limit;

	if (argc < 3)
		return 2;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < 4096)
		skip("a process may open %llu files only", (unsigned long long)limit.rlim_cur);
	want = (struct want){ .provider = argv[1] };
	board = shared(sizeof *board);
	if (!strcmp(argv[2], "connections"))
		connections();
	else
		threads();
	printf("many: complete\n");
	return 0;
}
