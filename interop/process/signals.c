/*
 * A process waits while signals come: an interval timer of 1 ms, whose handler has no SA_RESTART. No message is lost, no
 * wait is over early with a word about time, and none is over with a word the manual does not know.
 *
 *     signals PROVIDER WAIT [manual]
 *
 * WAIT: `cq` fi_cq_sread, `cq-fd` poll(2) on the queue's descriptor, `cntr` fi_cntr_wait, `eq` fi_eq_sread (connected
 * endpoints come and go), `set` fi_wait on a wait set, `handler` waits without an end that a handler's word ends.
 */
#include "end.h"

#define MESSAGES 300
#define PAUSE 2000      /* us between two messages, so that each is waited for */

static struct board {
	volatile int ready, received;
	struct name name[2];
} *board;

static struct want want;
static volatile sig_atomic_t ticks;

static void tick(int number)
{
	(void)number;
	ticks++;
}

static void start_ticks(void)
{
	struct sigaction action = { .sa_handler = tick };
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static void stop_ticks(void)
{
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &never, NULL);
}

static void be_sender(void)
{
	struct end end;
	fi_addr_t to;

	await_word(&board->ready, 1, "the receiver's name");
	open_end(&want, &end);
	name_of(&end, &board->name[1]);
	to = meet(&end, &board->name[0]);
	for (int i = 0; i < MESSAGES; i++) {
		send_one(&end, to, 1, (unsigned)i, 100);
		await_word(&board->received, i + 1, "the receiver's word");
		usleep(PAUSE);
	}
	close_end(&end);
	_exit(0);
}

/* Waits for one completion of a receive; how often the wait was over for nothing. */
static long wait_for(const char *kind, struct end *end, struct fid_wait *set, uint64_t number)
{
	struct fi_cq_tagged_entry entry;
	struct fid *fids[1] = { &end->cq->fid };
	double began = now();
	long vain = 0;
	ssize_t ret;

	for (;; vain++) {
		if (now() - began > 20)
			fail("message %d was not reported in 20 s", (int)number);
		if (!strcmp(kind, "cntr")) {
			ret = fi_cntr_wait(end->cntr, number + 1, 10000);
			if (ret == 0)
				break;
			if (ret != -FI_EINTR && ret != -FI_EAGAIN)
				fail("fi_cntr_wait after %.3f s of 10: %s", now() - began, fi_strerror((int)-ret));
			continue;
		}
		if (!strcmp(kind, "cq")) {
			ret = fi_cq_sread(end->cq, &entry, 1, NULL, 10000);
			if (ret == 1)
				return vain;
			if (ret != -FI_EINTR && ret != -FI_EAGAIN)
				fail("fi_cq_sread: %s", fi_strerror((int)-ret));
			continue;
		}
		if (!strcmp(kind, "set")) {
			ret = fi_wait(set, 10000);
			if (ret && ret != -FI_EINTR && ret != -FI_EAGAIN)
				fail("fi_wait after %.3f s of 10: %s", now() - began, fi_strerror((int)-ret));
		} else {
			struct pollfd at = { .events = POLLIN };

			check(fi_control(&end->cq->fid, FI_GETWAIT, &at.fd), "FI_GETWAIT");
			ret = fi_trywait(end->fabric, fids, 1);
			if (ret == 0) {
				ret = poll(&at, 1, 10000);
				if (ret == 0)
					fail("poll on the descriptor slept for 10 s");
				if (ret < 0 && errno != EINTR)
					fail("poll: %s", strerror(errno));
			} else if (ret != -FI_EAGAIN) {
				fail("fi_trywait: %s", fi_strerror((int)-ret));
			}
		}
		ret = fi_cq_read(end->cq, &entry, 1);
		if (ret == 1)
			return vain;
		if (ret != -FI_EAGAIN)
			fail("fi_cq_read: %s", fi_strerror((int)-ret));
	}
	/* The counter says so; the queue has it as well. */
	if (complete(end, &entry, 10) != 1)
		fail("a counted message has no completion");
	return vain;
}

/* What a wait that finds nothing says, and when. */
static void wait_in_vain(const char *kind, struct end *end, struct fid_wait *set)
{
	struct fi_cq_tagged_entry entry;
	double began = now(), took;
	ssize_t ret = 0;

	if (!strcmp(kind, "cntr"))
		ret = fi_cntr_wait(end->cntr, ~0ull, 200);
	else if (!strcmp(kind, "set"))
		ret = fi_wait(set, 200);
	else
		ret = fi_cq_sread(end->cq, &entry, 1, NULL, 200);
	took = now() - began;
	printf("signals: a wait of 0.2 s in vain: %s after %.3f s\n", fi_strerror((int)-ret), took);
	if (ret == -FI_ETIMEDOUT && took < 0.199)
		fail("FI_ETIMEDOUT after %.3f s of 0.2", took);
	if (ret >= 0 && strcmp(kind, "set"))
		fail("a wait for nothing says %zd", ret);
}

static void receive_all(const char *kind)
{
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET };
	struct fid_wait *set = NULL;
	unsigned char buf[MESSAGES][100];
	struct fi_context2 context[MESSAGES];
	struct end end;
	long vain = 0;

	open_end(&want, &end);
	if (!strcmp(kind, "set")) {
		/* The queue of the receiver belongs to a set: the endpoint is opened anew for it. */
		CLOSE(end.ep);
		CLOSE(end.cq);
		check(fi_wait_open(end.fabric, &set_attr, &set), "fi_wait_open");
		cq_attr.wait_set = set;
		check(fi_cq_open(end.domain, &cq_attr, &end.cq, NULL), "fi_cq_open in a set");
		check(fi_endpoint(end.domain, end.info, &end.ep, NULL), "fi_endpoint");
		check(fi_ep_bind(end.ep, &end.av->fid, 0), "fi_ep_bind");
		check(fi_ep_bind(end.ep, &end.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
		check(fi_ep_bind(end.ep, &end.cntr->fid, FI_RECV), "fi_ep_bind");
		check(fi_enable(end.ep), "fi_enable");
	}
	for (unsigned i = 0; i < MESSAGES; i++)
		POST(&end, fi_trecv(end.ep, buf[i], sizeof buf[i], NULL, FI_ADDR_UNSPEC, 1ull << 32 | i, 0, &context[i]));
	name_of(&end, &board->name[0]);
	start_ticks();
	wait_in_vain(kind, &end, set);
	say(&board->ready, 1);
	for (unsigned i = 0; i < MESSAGES; i++) {
		vain += wait_for(kind, &end, set, i);
		verify(buf[i], 1, i, sizeof buf[i]);
		say(&board->received, (int)i + 1);
	}
	stop_ticks();
	printf("signals: %d messages, %d signals, %ld waits over for nothing\n", MESSAGES, (int)ticks, vain);
	if (ticks < MESSAGES)
		fail("only %d signals came", (int)ticks);
	if (set) {
		/* The queue uses the set, and that the fabric. */
		CLOSE(end.ep);
		CLOSE(end.cq);
		check(fi_close(&set->fid), "fi_close of the set");
	}
	close_end(&end);
}

/* Connection requests and ends of connections, one after the other. */
static void events(void)
{
	struct fi_info *hints = fi_allocinfo(), *info, *there;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct name name = { .len = MAX_NAME };
	double began;
	long vain = 0;
	ssize_t ret;
	int pid;

	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->fabric_attr->prov_name = strdup(want.provider);
	hints->addr_format = is_tcp(&want) ? FI_SOCKADDR_IN : FI_ADDR_STR;
	ret = fi_getinfo(FI_VERSION(1, 17), is_tcp(&want) ? "127.0.0.1" : NULL, is_tcp(&want) ? "0" : NULL,
			 is_tcp(&want) ? FI_SOURCE : 0, hints, &info);
	if (ret == -FI_ENODATA)
		skip("no connected endpoints");
	check(ret, "fi_getinfo");
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_eq_open(fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	check(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
	check(fi_listen(pep), "fi_listen");
	check(fi_getname(&pep->fid, name.bytes, &name.len), "fi_getname");
	pid = spawn("client");
	if (!pid) {
		struct fid_domain *domain;
		struct fid_cq *cq;
		struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
		struct fid_ep *ep;
		struct fid_fabric *own;
		struct fid_eq *events;
		struct fi_eq_cm_entry entry;
		uint32_t event;

		hints->dest_addr = malloc(name.len);
		memcpy(hints->dest_addr, name.bytes, name.len);
		hints->dest_addrlen = name.len;
		check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &there), "fi_getinfo");
		check(fi_fabric(there->fabric_attr, &own, NULL), "fi_fabric");
		check(fi_eq_open(own, &eq_attr, &events, NULL), "fi_eq_open");
		check(fi_domain(own, there, &domain, NULL), "fi_domain");
		check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
		for (int i = 0; i < 20; i++) {
			usleep(PAUSE * 4);
			check(fi_endpoint(domain, there, &ep, NULL), "fi_endpoint");
			check(fi_ep_bind(ep, &events->fid, 0), "fi_ep_bind");
			check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
			check(fi_enable(ep), "fi_enable");
			check(fi_connect(ep, name.bytes, NULL, 0), "fi_connect");
			/* The server rejects. */
			while ((ret = fi_eq_sread(events, &event, &entry, sizeof entry, 10000, 0)) == -FI_EAGAIN ||
			       ret == -FI_EINTR)
				;
			if (ret != -FI_EAVAIL)
				fail("no rejection: %zd", ret);
			struct fi_eq_err_entry error = { 0 };

			fi_eq_readerr(events, &error, 0);
			check(fi_close(&ep->fid), "fi_close");
		}
		_exit(0);
	}
	start_ticks();
	began = now();
	{
		struct fi_eq_cm_entry entry;
		uint32_t event;

		for (int i = 0; i < 20;) {
			ret = fi_eq_sread(eq, &event, &entry, sizeof entry, 10000, 0);
			if (ret == (ssize_t)sizeof entry && event == FI_CONNREQ) {
				check(fi_reject(pep, entry.info->handle, NULL, 0), "fi_reject");
				fi_freeinfo(entry.info);
				i++;
				continue;
			}
			if (ret != -FI_EAGAIN && ret != -FI_EINTR)
				fail("fi_eq_sread: %s", fi_strerror((int)-ret));
			vain++;
			if (now() - began > 20)
				fail("only %d requests in 20 s", i);
		}
	}
	/* The last answer goes out by our own progress. */
	while (!waitpid(pid, NULL, WNOHANG)) {
		struct fi_eq_cm_entry entry;
		uint32_t event;

		fi_eq_read(eq, &event, &entry, sizeof entry, 0);
		if (now() - began > 30)
			fail("the client did not end");
	}
	stop_ticks();
	printf("signals: 20 requests, %d signals, %ld waits over for nothing\n", (int)ticks, vain);
	check(fi_close(&pep->fid), "fi_close");
	check(fi_close(&eq->fid), "fi_close");
	check(fi_close(&fabric->fid), "fi_close");
}

/* `fi_cq_sread` and `fi_eq_sread` without a time: a signal ends them, so that a program can stop.
 * It comes again and again: the first may come before the wait has begun, on a machine that does much else. */
static void handler(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_cm_entry cm;
	uint32_t event;
	struct sigaction action = { .sa_handler = tick };
	struct itimerval every = { { 0, 100000 }, { 0, 100000 } };
	struct fid_eq *eq;
	struct end end;
	ssize_t ret;

	open_end(&want, &end);
	check(fi_eq_open(end.fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	sigaction(SIGALRM, &action, NULL);
	signal(SIGUSR1, SIG_DFL);
	setitimer(ITIMER_REAL, &every, NULL);
	ret = fi_cq_sread(end.cq, &entry, 1, NULL, -1);
	printf("signals: fi_cq_sread: %s\n", fi_strerror((int)-ret));
	if (ret != -FI_EAGAIN && ret != -FI_EINTR)
		fail("fi_cq_sread says %zd", ret);
	if (!ticks)
		fail("fi_cq_sread returns before there is a signal");
	ticks = 0;
	ret = fi_eq_sread(eq, &event, &cm, sizeof cm, -1, 0);
	printf("signals: fi_eq_sread: %s\n", fi_strerror((int)-ret));
	if (ret != -FI_EAGAIN && ret != -FI_EINTR)
		fail("fi_eq_sread says %zd", ret);
	if (!ticks)
		fail("fi_eq_sread returns before there is a signal");
	stop_ticks();
	check(fi_close(&eq->fid), "fi_close");
	close_end(&end);
}

int main(int argc, char **argv)
{
	int pid;

	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .wait = strcmp(argv[2], "cq-fd") ? FI_WAIT_UNSPEC : FI_WAIT_FD,
		.progress = argc > 3 && !strcmp(argv[3], "manual") ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO };
	board = shared(sizeof *board);
	if (!strcmp(argv[2], "eq")) {
		events();
		return 0;
	}
	if (!strcmp(argv[2], "handler")) {
		handler();
		return 0;
	}
	pid = spawn("sender");
	if (!pid)
		be_sender();
	who = "receiver";
	receive_all(argv[2]);
	ends_well(pid, "the sender", 30);
	return 0;
}
