/*
 * A process and two peers in network namespaces of their own, each behind an interface of its own; tcp only.
 *
 *     network PROVIDER WHAT
 *
 * WHAT: `dead-send`, `dead-receive` the interface of one peer goes down, without a word to anybody, while large sends
 * to it are under way, or receives from it wait: they fail in the time that is documented for the death of a machine;
 * `midway-peer`, `midway-own` that interface, or this process' own to that peer, goes down in the middle of a stream of
 * large messages; `dead-connect` it is down before the first message; `loss` a tenth of all packets is lost, and
 * everything arrives. Meanwhile the other peer is served as ever.
 */
#include "end.h"

#include <sched.h>

/*
 * Of a peer whose machine dies: 9 to 11 s, and receives from it fail when it cannot be reached again, which takes 5 s. 2 s
 * are for a machine that is busy.
 */
#define DEATH 13
#define REACH 7
#define RECEIVES 8
#define STREAM 4u               /* large messages under way */

static struct board {
	volatile int apart, linked, ready[2], up, done;
	volatile int served;
	struct name name[3], own[2];
} *board;

static struct want want;

__attribute__((format(printf, 1, 2))) static int command(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	return system(line);
}

/* A peer in a namespace of its own: 10.77.N.2 behind its interface. */
static void be_peer(int number, const char *what)
{
	struct want own = want;
	static char node[32];
	struct end end;
	fi_addr_t to;

	if (unshare(CLONE_NEWNET))
		skip("no network namespace: %s", strerror(errno));
	__atomic_add_fetch(&board->apart, 1, __ATOMIC_SEQ_CST);
	await_word(&board->linked, 1, "the interface");
	snprintf(node, sizeof node, "10.77.%d.2", number);
	if (command("ip link set lo up; ip addr add %s/24 dev in%d; ip link set in%d up", node, number, number))
		skip("the interface cannot be set up");
	if (!strcmp(what, "loss") && command("tc qdisc add dev in%d root netem loss 10%% 2>/dev/null", number))
		skip("no tc netem");
	own.node = node;
	open_end(&own, &end);
	name_of(&end, &board->name[number]);
	say(&board->ready[number - 1], 1);
	await_word(&board->up, 1, "the word to begin");
	to = meet(&end, &board->own[number - 1]);
	/* Answers everything, in the order it comes. */
	for (unsigned i = 0; !__atomic_load_n(&board->done, __ATOMIC_ACQUIRE); i++) {
		unsigned char *buf = malloc(1 << 20);
		struct fi_context2 context;
		struct fi_cq_tagged_entry entry;
		int n = 0;

		POST(&end, fi_trecv(end.ep, buf, 1 << 20, NULL, FI_ADDR_UNSPEC, 1ull << 32 | i, 0, &context));
		while (!(n = poll_one(&end, &entry)) && !__atomic_load_n(&board->done, __ATOMIC_ACQUIRE))
			;
		if (n != 1)
			_exit(0);
		verify(buf, 1, i, entry.len);
		if (entry.len < 1000)
			send_one(&end, to, (unsigned)number + 1, i, entry.len);
		free(buf);
	}
	_exit(0);
}

/* One message there and back. */
static void ask(struct end *end, fi_addr_t to, int number, unsigned i)
{
	send_one(end, to, 1, i, 500);
	receive_one(end, (unsigned)number + 1, i, 500);
}

static void end_peers(const int pid[2])
{
	say(&board->done, 1);
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
}

/* Posts a message of 1 MiB. */
static void send_large(struct end *end, fi_addr_t to, unsigned char *buf, unsigned number, struct fi_context2 *context)
{
	fill(buf, 1, number, 1 << 20);
	POST(end, fi_tsend(end->ep, buf, 1 << 20, NULL, to, 1ull << 32 | number, context));
}

/*
 * Keeps large messages to the first peer under way. When some of them have arrived, `lose` takes the interface down, and
 * those that are under way fail; the other peer is served as ever.
 */
static void stream(struct end end[2], const fi_addr_t to[2], unsigned asked[2], const char *lose)
{
	static unsigned char large[STREAM][1 << 20];
	struct fi_context2 context[STREAM];
	struct fi_cq_tagged_entry entry;
	unsigned slot, arrived = 0, failed = 0;
	double limit = now() + 30, down = 0;

	for (slot = 0; slot < STREAM; slot++)
		send_large(&end[0], to[0], large[slot], asked[0]++, &context[slot]);
	while (failed < STREAM) {
		int n = poll_one(&end[0], &entry);

		if (n < 0) {
			if (!down)
				fail("%s while the interface was up", fi_strerror(-n));
			printf("network: %s after %.1f s\n", fi_strerror(-n), now() - down);
			failed++;
		} else if (n > 0 && !failed) {
			slot = (unsigned)((struct fi_context2 *)entry.op_context - context);
			send_large(&end[0], to[0], large[slot], asked[0]++, &context[slot]);
			if (++arrived == 2 * STREAM) {
				if (command("%s", lose))
					skip("no command nsenter");
				down = now();
				limit = down + DEATH;
			}
		} else if (n > 0) {
			fail("a message has arrived after one before it has not");
		}
		if (now() > limit)
			fail("%u have arrived and %u of %u failed", arrived, failed, STREAM);
		ask(&end[1], to[1], 2, asked[1]++);
	}
	printf("network: %u messages have arrived, and the other peer was served %u times\n", arrived, asked[1]);
}

int main(int argc, char **argv)
{
	static unsigned char large[1 << 20];
	struct want own;
	struct end end[2];
	fi_addr_t to[2];
	struct fi_cq_tagged_entry entry;
	struct fi_context2 context[64];
	bool loss, connected;
	unsigned asked[2] = { 0, 0 }, served = 0;
	int pid[2], failed = 0, taken = 0, posted = 0;
	double down, most = 0;

	if (argc < 3)
		return 2;
	forget_descriptors();
	want = (struct want){ .provider = argv[1], .caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV };
	loss = !strcmp(argv[2], "loss");
	connected = strcmp(argv[2], "dead-connect");
	if (geteuid())
		skip("only root can have network namespaces");
	if (command("ip -V >/dev/null 2>&1"))
		skip("no command ip");
	if (unshare(CLONE_NEWNET))
		skip("no network namespace: %s", strerror(errno));
	board = shared(sizeof *board);
	for (int i = 0; i < 2; i++) {
		pid[i] = spawn(i ? "second peer" : "first peer");
		if (!pid[i])
			be_peer(i + 1, argv[2]);
	}
	await_word(&board->apart, 2, "the peers' namespaces");
	command("ip link set lo up");
	for (int i = 1; i <= 2; i++)
		if (command("ip link add out%d type veth peer name in%d netns %d && ip addr add 10.77.%d.1/24 dev out%d && "
			    "ip link set out%d up", i, i, pid[i - 1], i, i, i))
			skip("no virtual interfaces");
	if (loss && command("tc qdisc add dev out1 root netem loss 10%% 2>/dev/null && "
			    "tc qdisc add dev out2 root netem loss 10%% 2>/dev/null"))
		skip("no tc netem");
	say(&board->linked, 1);
	for (int i = 0; i < 2; i++)
		await_word(&board->ready[i], 1, "a peer's name");
	/* An endpoint at each interface. */
	own = want;
	own.node = "10.77.1.1";
	open_end(&own, &end[0]);
	own.node = "10.77.2.1";
	open_end(&own, &end[1]);
	name_of(&end[0], &board->own[0]);
	name_of(&end[1], &board->own[1]);
	to[0] = meet(&end[0], &board->name[1]);
	to[1] = meet(&end[1], &board->name[2]);
	say(&board->up, 1);
	ask(&end[1], to[1], 2, asked[1]++);
	if (connected)
		ask(&end[0], to[0], 1, asked[0]++);
	if (loss) {
		for (int i = 0; i < 40; i++)
			for (int k = 0; k < 2; k++) {
				ask(&end[k], to[k], k + 1, asked[k]++);
				if (i % 10 == 0)
					send_one(&end[k], to[k], 1, asked[k]++, 300000);
			}
		printf("network: complete with a tenth of the packets lost\n");
		end_peers(pid);
		return 0;
	}
	if (!strncmp(argv[2], "midway", 6)) {
		char lose[64] = "ip link set out1 down";

		if (!strcmp(argv[2], "midway-peer"))
			snprintf(lose, sizeof lose, "nsenter -t %d -n ip link set in1 down", pid[0]);
		printf("network: the peer is process %d\n", pid[0]);
		stream(end, to, asked, lose);
		end_peers(pid);
		printf("network: complete\n");
		return 0;
	}
	/* The interface of the first peer goes down on the way: no packet comes or goes, and nobody says so. */
	if (command("nsenter -t %d -n ip link set in1 down", pid[0]))
		skip("no command nsenter");
	down = now();
	if (!strcmp(argv[2], "dead-receive")) {
		for (; posted < RECEIVES; posted++)
			POST(&end[0], fi_trecv(end[0].ep, large, sizeof large, NULL, to[0], 2ull << 32 | (unsigned)posted, 0,
					       &context[posted]));
	} else {
		for (; posted < 32; posted++) {
			ssize_t ret = fi_tsend(end[0].ep, large, sizeof large, NULL, to[0], 99, &context[posted]);

			if (ret == -FI_EAGAIN)
				break;
			check(ret, "fi_tsend");
		}
	}
	printf("network: %d operations for the dead peer\n", posted);
	while (failed + taken < posted) {
		double limit = !connected ? REACH : posted == RECEIVES ? DEATH + 5 : DEATH, began;
		int n = poll_one(&end[0], &entry);

		if (n < 0) {
			failed++;
			printf("network: %s after %.1f s\n", fi_strerror(-n), now() - down);
		}
		/* What the system has taken is done for the sender: its death is then known by the rest. */
		if (n > 0)
			taken++;
		if (now() - down > limit)
			fail("after %.1f s, %d of %d operations have failed", now() - down, failed, posted);
		began = now();
		ask(&end[1], to[1], 2, asked[1]++);
		served++;
		if (now() - began > most)
			most = now() - began;
	}
	printf("network: the other peer was served %u times, in %.3f s at most\n", served, most);
	if (!failed)
		fail("nothing failed");
	end_peers(pid);
	printf("network: complete\n");
	return 0;
}
