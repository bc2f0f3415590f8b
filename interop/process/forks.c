/*
 * A process with open endpoints forks while it exchanges messages with a peer. Whatever the child does, the parent goes
 * on and its peer gets every byte.
 *
 *     forks PROVIDER CHILD [manual]
 *
 * CHILD: `leaves` calls _exit, `exits` calls exit, `execs` becomes another program, which finds no descriptor of ours;
 * `waits` does nothing while the parent goes on and ends; `calls` uses every object it has inherited, which is refused
 * or works, but harms nobody; `closes` closes them; `opens` opens endpoints of its own and exchanges messages with the
 * peer.
 */
#include "end.h"

#define ROUNDS 8
#define MESSAGES 50

enum { PARENT = 1, PEER, CHILD };

static struct board {
	volatile int ready, child_ready, child_done;
	struct name peer, child;
} *board;

static struct want want;

/* Messages `from` sends in round `round`. */
static void exchange(struct end *end, fi_addr_t to, unsigned me, unsigned other, unsigned round)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		size_t len = i % 10 == 9 ? 100000 : i * 13;
		unsigned number = round * MESSAGES + i;

		if (me < other) {
			send_one(end, to, me, number, len);
			receive_one(end, other, number, len);
		} else {
			receive_one(end, other, number, len);
			send_one(end, to, me, number, len);
		}
	}
}

static void be_peer(int rounds, bool serves_child)
{
	struct end end;
	fi_addr_t parent, child;

	open_end(&want, &end);
	name_of(&end, &board->peer);
	say(&board->ready, 1);
	await_word(&board->ready, 2, "the parent's name");
	parent = meet(&end, &board->child);
	for (int round = 0; round < rounds; round++) {
		exchange(&end, parent, PEER, PARENT, (unsigned)round);
		if (serves_child && round + 1 < rounds) {
			await_word(&board->child_ready, round + 1, "the child");
			child = meet(&end, &board->child);
			exchange(&end, child, PEER, CHILD, (unsigned)round);
			say(&board->child_done, round + 1);
		}
	}
	close_end(&end);
	_exit(0);
}

static void shows(const char *what, ssize_t result)
{
	printf("child: %s: %s\n", what, result < 0 ? fi_strerror((int)-result) : "works");
}

/* All kinds of calls on what was inherited. */
static void use(struct end *end, fi_addr_t peer)
{
	static unsigned char buf[4096];
	struct fi_cq_tagged_entry entry[8];
	struct fi_context2 context[8];
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	struct name name = { .len = MAX_NAME };
	int fd;

	memset(buf, 0xee, sizeof buf);
	shows("fi_cq_read", fi_cq_read(end->cq, entry, 8));
	shows("fi_tinject", fi_tinject(end->ep, buf, 64, peer, 7));
	shows("fi_tsend", fi_tsend(end->ep, buf, sizeof buf, NULL, peer, 7, &context[0]));
	shows("fi_send", fi_send(end->ep, buf, sizeof buf, NULL, peer, &context[1]));
	shows("fi_trecv", fi_trecv(end->ep, buf, sizeof buf, NULL, FI_ADDR_UNSPEC, 0, ~0ull, &context[2]));
	shows("fi_recv", fi_recv(end->ep, buf, sizeof buf, NULL, FI_ADDR_UNSPEC, &context[3]));
	shows("fi_cq_read", fi_cq_read(end->cq, entry, 8));
	shows("fi_cq_sread", fi_cq_sread(end->cq, entry, 8, NULL, 20));
	shows("fi_cntr_wait", fi_cntr_wait(end->cntr, ~0ull, 20));
	shows("fi_cntr_set", fi_cntr_set(end->cntr, 0));
	shows("fi_cancel", fi_cancel(&end->ep->fid, &context[2]));
	shows("fi_getname", fi_getname(&end->ep->fid, name.bytes, &name.len));
	shows("fi_control", fi_control(&end->cq->fid, FI_GETWAIT, &fd));
	shows("fi_mr_reg", fi_mr_reg(end->domain, buf, sizeof buf, FI_SEND, 0, 1, 0, &mr, NULL));
	shows("fi_cq_open", fi_cq_open(end->domain, &cq_attr, &cq, NULL));
	shows("fi_endpoint", fi_endpoint(end->domain, end->info, &ep, NULL));
	shows("fi_eq_open", fi_eq_open(end->fabric, &eq_attr, &eq, NULL));
	fflush(stdout);
}

/* What the program after exec does: looks at its descriptors. */
static int look(void)
{
	for (int fd = 3; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			char path[64], name[256] = "";

			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			if (readlink(path, name, sizeof name - 1) < 0)
				name[0] = 0;
			fprintf(stderr, "rank child: descriptor %d was inherited: %s\n", fd, name);
			return 1;
		}
	return 0;
}

__attribute__((noreturn)) static void be_child(const char *kind, struct end *end, fi_addr_t peer, int round)
{
	alarm(20);
	if (!strcmp(kind, "leaves"))
		_exit(0);
	if (!strcmp(kind, "exits"))
		exit(0);
	if (!strcmp(kind, "execs")) {
		/* The linker would have a file of its own open. */
		unsetenv("LD_DEBUG");
		execl("/proc/self/exe", "forks", "look", (char *)NULL);
		fail("exec: %s", strerror(errno));
	}
	if (!strcmp(kind, "waits"))
		for (;;)
			pause();
	if (!strcmp(kind, "calls")) {
		use(end, peer);
		exit(0);
	}
	if (!strcmp(kind, "closes")) {
		close_end(end);
		exit(0);
	}
	if (!strcmp(kind, "opens")) {
		struct end own;

		open_end(&want, &own);
		name_of(&own, &board->child);
		peer = meet(&own, &board->peer);
		say(&board->child_ready, round);
		exchange(&own, peer, CHILD, PEER, (unsigned)round - 1);
		await_word(&board->child_done, round, "the peer's last message");
		close_end(&own);
		exit(0);
	}
	fail("%s: no such child", kind);
}

int main(int argc, char **argv)
{
	bool opens, waits;
	int peer, pid, waiting[ROUNDS], rounds;
	struct end end;
	fi_addr_t to;

	if (argc == 2 && !strcmp(argv[1], "look"))
		return look();
	forget_descriptors();
	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .wait = FI_WAIT_UNSPEC,
		.progress = argc > 3 && !strcmp(argv[3], "manual") ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO };
	opens = !strcmp(argv[2], "opens");
	waits = !strcmp(argv[2], "waits");
	rounds = opens || !strcmp(argv[2], "calls") ? 5 : ROUNDS;
	board = shared(sizeof *board);
	peer = spawn("peer");
	if (!peer)
		be_peer(rounds, opens);
	who = "parent";
	await_word(&board->ready, 1, "the peer's name");
	open_end(&want, &end);
	name_of(&end, &board->child);
	to = meet(&end, &board->peer);
	say(&board->ready, 2);
	for (int round = 0; round < rounds; round++) {
		exchange(&end, to, PARENT, PEER, (unsigned)round);
		if (round + 1 == rounds)
			break;
		pid = spawn("child");
		if (!pid)
			be_child(argv[2], &end, to, round + 1);
		if (waits)
			waiting[round] = pid;
		else if (opens) {
			double limit = now() + 30;
			struct fi_cq_tagged_entry entry;

			/* The parent looks after its own while its child talks. */
			while (__atomic_load_n(&board->child_done, __ATOMIC_ACQUIRE) < round + 1) {
				if (poll_one(&end, &entry))
					fail("a completion that is not the parent's");
				if (now() > limit)
					fail("the child has not exchanged its messages in 30 s");
			}
			ends_well(pid, "the child", 30);
		} else if (round % 2) {
			ends_well(pid, "the child", 30);
		} else {
			/* The parent goes on at once. */
			waiting[round] = pid;
		}
	}
	ends_well(peer, "the peer", 60);
	close_end(&end);
	for (int round = 0; round + 1 < rounds && !opens; round++) {
		if (waits) {
			kill(waiting[round], SIGKILL);
			waitpid(waiting[round], NULL, 0);
		} else if (round % 2 == 0) {
			ends_well(waiting[round], "the child", 30);
		}
	}
	printf("forks: %d rounds complete\n", rounds);
	return 0;
}
