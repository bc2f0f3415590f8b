/*
 * How long the library waits for others, by its own clock, as it is shipped: nothing sets a parameter. The library reads
 * the clock through this program, which has it go ahead, so that what takes ten minutes is seen in a few seconds.
 *
 *     patience PROVIDER WHAT
 *
 * WHAT: `answer` a send to a process that is connected and never answers fails after 600 s; `connect` a connection to one
 * does; `header` a stranger that stops in the middle of what it says is thrown out after 5 s, and one that says nothing
 * after 600 s. Nobody else is disturbed meanwhile.
 *
 * The clock goes on by itself too, and a busy machine takes its time: what is to happen after 600 s has not happened after
 * 590 s, and has after 605 s.
 */
#include "end.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static struct board {
	volatile int ready;
	struct name name;
} *board;

static struct want want;
static volatile int64_t ahead;  /* s */

/* The C library's, for this program and for the library under test. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	long ret = syscall(SYS_clock_gettime, clock, now);

	if (ret == 0 && clock == CLOCK_MONOTONIC)
		now->tv_sec += __atomic_load_n(&ahead, __ATOMIC_RELAXED);
	return (int)ret;
}

/* Seconds that have really passed. */
static double real(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static double began;

/* From now on it is `seconds` after the begin. */
static void go_to(int seconds)
{
	int64_t next = seconds - (int64_t)(real() - began);

	if (next < ahead)
		fail("the machine is too slow: %.1f s before second %d", real() - began, seconds);
	__atomic_store_n(&ahead, next, __ATOMIC_RELAXED);
}

/* Somebody who takes connections and says nothing: the system accepts them for it. */
static struct sockaddr_in silent(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof at;
	int door = socket(AF_INET, SOCK_STREAM, 0);

	if (door < 0 || bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 10) ||
	    getsockname(door, (struct sockaddr *)&at, &len))
		fail("a listener: %s", strerror(errno));
	return at;
}

/* An endpoint that never makes progress. */
static int be_silent(void)
{
	int pid = spawn("silent");

	if (!pid) {
		struct end end;

		want.progress = FI_PROGRESS_MANUAL;
		open_end(&want, &end);
		name_of(&end, &board->name);
		say(&board->ready, 1);
		for (;;)
			pause();
	}
	await_word(&board->ready, 1, "the name of the silent process");
	return pid;
}

/* Nothing happens for a while that really passes: the library looks at its clock every now and then. */
#define LOOK 0.6

static void nothing_ends(struct end *end, int at)
{
	struct fi_cq_tagged_entry entry;
	double until;
	int n;

	go_to(at);
	until = real() + LOOK;
	while (real() < until)
		if ((n = poll_one(end, &entry)))
			fail("over before second %d: %s", at, n < 0 ? fi_strerror(-n) : "a completion");
}

/* Both ends of a loop are this process: it is its own good neighbour. */
static void neighbours_go_on(struct end *end, fi_addr_t self, unsigned number)
{
	unsigned char out[64], in[64] = { 0 };
	struct fi_context2 contexts[2];
	struct fi_cq_tagged_entry entry;
	double until = real() + 20;

	fill(out, 3, number, sizeof out);
	POST(end, fi_trecv(end->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, number, 0, &contexts[0]));
	POST(end, fi_tsend(end->ep, out, sizeof out, NULL, self, number, &contexts[1]));
	for (int done = 0; done < 2;) {
		int n = poll_one(end, &entry);

		if (n < 0)
			fail("a message to a good neighbour: %s", fi_strerror(-n));
		done += n;
		if (real() > until)
			fail("a good neighbour does not hear us");
	}
	verify(in, 3, number, sizeof in);
}

static void answer(void)
{
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	struct name own;
	struct end end;
	fi_addr_t self, to;
	double until;
	int pid = 0, n;

	if (!is_tcp(&want))
		pid = be_silent();
	open_end(&want, &end);
	name_of(&end, &own);
	self = meet(&end, &own);
	neighbours_go_on(&end, self, 1);
	if (is_tcp(&want)) {
		struct sockaddr_in at = silent();

		memcpy(board->name.bytes, &at, board->name.len = sizeof at);
	}
	to = meet(&end, &board->name);
	began = real();
	POST(&end, fi_tsend(end.ep, "hello?", 6, NULL, to, 7, &context));
	nothing_ends(&end, 4);
	nothing_ends(&end, 8);
	nothing_ends(&end, 300);
	neighbours_go_on(&end, self, 2);
	nothing_ends(&end, 590);
	go_to(605);
	until = real() + 20;
	while (!(n = poll_one(&end, &entry)))
		if (real() > until)
			fail("the send is not over after 605 s");
	printf("patience: the send ended with %s\n", n < 0 ? fi_strerror(-n) : "success");
	if (n != -FI_ETIMEDOUT || entry.op_context != &context)
		fail("the send ended with %d", n);
	neighbours_go_on(&end, self, 3);
	close_end(&end);
	if (pid) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

static void connect_silent(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
	struct sockaddr_in at = silent();
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_cm_entry entry;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	uint32_t event;
	double until;
	ssize_t ret;

	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->fabric_attr->prov_name = strdup(want.provider);
	hints->addr_format = FI_SOCKADDR_IN;
	hints->dest_addr = memcpy(malloc(sizeof at), &at, sizeof at);
	hints->dest_addrlen = sizeof at;
	check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "fi_getinfo");
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_eq_open(fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
	began = real();
	check(fi_connect(ep, &at, NULL, 0), "fi_connect");
	for (int i = 0; i < 4; i++) {
		static const int moments[] = { 4, 8, 300, 590 };

		go_to(moments[i]);
		until = real() + LOOK;
		while (real() < until)
			if ((ret = fi_eq_read(eq, &event, &entry, sizeof entry, 0)) != -FI_EAGAIN)
				fail("over before second %d: %zd", moments[i], ret);
	}
	go_to(605);
	until = real() + 20;
	while ((ret = fi_eq_read(eq, &event, &entry, sizeof entry, 0)) == -FI_EAGAIN)
		if (real() > until)
			fail("the connection is not over after 605 s");
	if (ret != -FI_EAVAIL || fi_eq_readerr(eq, &error, 0) != sizeof error)
		fail("no error entry but %zd", ret);
	printf("patience: the connection ended with %s\n", fi_strerror(error.err));
	if (error.err != FI_ETIMEDOUT || error.fid != &ep->fid)
		fail("the connection ended with %d", error.err);
	check(fi_close(&ep->fid), "fi_close");
	check(fi_close(&cq->fid), "fi_close");
	check(fi_close(&domain->fid), "fi_close");
	check(fi_close(&eq->fid), "fi_close");
	check(fi_close(&fabric->fid), "fi_close");
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* Whether a stranger is still connected. */
static bool is_in(int stranger)
{
	char byte;
	ssize_t n = recv(stranger, &byte, 1, MSG_DONTWAIT);

	return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void stay(struct end *end, const int *strangers, const bool *in, int at)
{
	struct fi_cq_tagged_entry entry;
	double until;

	go_to(at);
	until = real() + 20;
	for (int i = 0; i < 3; i++)
		while (!in[i] && is_in(strangers[i])) {
			if (poll_one(end, &entry))
				fail("a completion nobody waits for");
			if (real() > until)
				fail("stranger %d is still in after second %d", i, at);
		}
	until = real() + LOOK;
	while (real() < until) {
		if (poll_one(end, &entry))
			fail("a completion nobody waits for");
		for (int i = 0; i < 3; i++)
			if (in[i] && !is_in(strangers[i]))
				fail("stranger %d is out before second %d", i, at);
	}
}

static void header(void)
{
	/* The first bytes of a connection request of the protocol; none of all it needs. */
	static const unsigned char begin[] = { 1 };
	struct end end;
	struct name own;
	struct sockaddr_in at;
	fi_addr_t self;
	int strangers[3];

	open_end(&want, &end);
	name_of(&end, &own);
	self = meet(&end, &own);
	memcpy(&at, own.bytes, sizeof at);
	began = real();
	for (int i = 0; i < 3; i++) {
		strangers[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (strangers[i] < 0 || connect(strangers[i], (struct sockaddr *)&at, sizeof at))
			fail("connect: %s", strerror(errno));
	}
	if (send(strangers[0], begin, sizeof begin, 0) != sizeof begin)
		fail("send: %s", strerror(errno));
	stay(&end, strangers, (bool[]){ true, true, true }, 3);
	stay(&end, strangers, (bool[]){ false, true, true }, 8);
	neighbours_go_on(&end, self, 1);
	stay(&end, strangers, (bool[]){ false, true, true }, 590);
	stay(&end, strangers, (bool[]){ false, false, false }, 605);
	neighbours_go_on(&end, self, 2);
	close_end(&end);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .caps = FI_MSG | FI_TAGGED };
	board = shared(sizeof *board);
	if (!strcmp(argv[2], "answer"))
		answer();
	else if (!strcmp(argv[2], "connect"))
		connect_silent();
	else
		header();
	printf("patience: complete\n");
	return 0;
}
