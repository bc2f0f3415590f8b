/* Two processes that exchange tagged messages over lnx of a C libfabric, which composes other providers: every
 * size, for receives that are posted and for messages that come first, taken in any order, peeked at, claimed and
 * dropped. Every byte is checked. Each endpoint's name reaches the other process by a socket. */
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define LONGEST (4 << 20)
#define PATIENCE 120

static const size_t sizes[] = { 1, 64, 4096, 16384, 16385, 65536, 262144, 262145, 1 << 20, LONGEST };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static struct fid_ep *ep;
static struct fid_cq *cq;
static fi_addr_t peer;
static int rank, other;
static unsigned long checked;
static unsigned char *out[2], *in[SIZES];

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("rank %d: ", rank);
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

static void check(const char *what, long code)
{
	if (code < 0)
		die("%s: %s", what, fi_strerror((int) -code));
}

static void whole(int sending, void *data, size_t len)
{
	char *at = data;

	while (len) {
		ssize_t done = sending ? write(other, at, len) : read(other, at, len);

		if (done <= 0)
			die("the other process is gone");
		at += done;
		len -= (size_t) done;
	}
}

/* Both have come here. Progress is made meanwhile: the other may need it. */
static void meet(void)
{
	struct pollfd waiting = { .fd = other, .events = POLLIN };
	char mark = 0;

	whole(1, &mark, 1);
	while (!poll(&waiting, 1, 0))
		fi_cq_read(cq, NULL, 0);
	whole(0, &mark, 1);
}

static time_t limit;

/* Makes progress; returns whether an entry was read. */
static int progress(struct fi_cq_tagged_entry *entry)
{
	ssize_t got = fi_cq_read(cq, entry, 1);

	if (got == 1)
		return 1;
	if (got == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		check("fi_cq_readerr", fi_cq_readerr(cq, &error, 0));
		if (error.err != FI_ENOMSG)
			die("an operation failed: %s", fi_strerror(error.err));
		entry->flags = 0;
		return 1;
	}
	if (got != -FI_EAGAIN)
		check("fi_cq_read", got);
	if (time(NULL) > limit)
		die("nothing comes");
	return 0;
}

static struct fi_cq_tagged_entry next(void)
{
	struct fi_cq_tagged_entry entry;

	limit = time(NULL) + PATIENCE;
	while (!progress(&entry))
		;
	return entry;
}

/* Lets what has been sent arrive. */
static void linger(long milliseconds)
{
	struct timespec now, start;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		fi_cq_read(cq, NULL, 0);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < milliseconds * 1000000L);
}

static void fill(unsigned char *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (unsigned char) (i * 131 + (i >> 8) + seed);
}

static void same(const unsigned char *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (data[i] != (unsigned char) (i * 131 + (i >> 8) + seed))
			die("byte %zu of %zu is wrong", i, len);
	checked++;
}

static void send_tag(unsigned char *data, size_t len, uint64_t tag, void *context)
{
	ssize_t code;

	limit = time(NULL) + PATIENCE;
	while ((code = fi_tsend(ep, data, len, NULL, peer, tag, context)) == -FI_EAGAIN) {
		if (time(NULL) > limit)
			die("a send finds no room");
		fi_cq_read(cq, NULL, 0);
	}
	check("fi_tsend", code);
}

static void recv_tag(unsigned char *data, size_t len, fi_addr_t from, uint64_t tag, void *context)
{
	check("fi_trecv", fi_trecv(ep, data, len, NULL, from, tag, 0, context));
}

/* Waits for so many ends; returns how many of them are of receives. */
static int ends(int count)
{
	int received = 0;

	while (count--)
		received += (next().flags & FI_RECV) != 0;
	return received;
}

/* One message each way, with the receive posted before or after. */
static void both_ways(size_t len, int late, fi_addr_t from)
{
	fill(out[0], len, (unsigned) rank);
	memset(in[0], 0xee, len);
	if (!late)
		recv_tag(in[0], len, from, 7, NULL);
	meet();
	send_tag(out[0], len, 7, NULL);
	if (late) {
		meet();
		linger(2);
		recv_tag(in[0], len, from, 7, NULL);
	}
	if (ends(2) != 1)
		die("a message of %zu bytes was not received once", len);
	same(in[0], len, (unsigned) !rank);
	meet();
}

/* Rank 0 sends one message of each size; rank 1 takes them in the opposite order. */
static void backwards(void)
{
	if (!rank) {
		static unsigned char *each[SIZES];

		for (size_t i = 0; i < SIZES; i++) {
			each[i] = malloc(sizes[i]);
			fill(each[i], sizes[i], (unsigned) i);
			send_tag(each[i], sizes[i], 100 + i, NULL);
		}
		meet();
		ends(SIZES);
		meet();
		for (size_t i = 0; i < SIZES; i++)
			free(each[i]);
		return;
	}
	meet();
	linger(50);
	for (size_t i = SIZES; i--;)
		recv_tag(in[i], sizes[i], FI_ADDR_UNSPEC, 100 + i, NULL);
	ends(SIZES);
	for (size_t i = 0; i < SIZES; i++)
		same(in[i], sizes[i], (unsigned) i);
	meet();
}

/* Looks until such a message has come. */
static void await(const struct fi_msg_tagged *message)
{
	time_t until = time(NULL) + PATIENCE;

	do {
		if (time(NULL) > until)
			die("nothing is found");
		linger(1);
		check("FI_PEEK", fi_trecvmsg(ep, message, FI_PEEK));
	} while (!next().flags);
}

/* Rank 1 looks at what rank 0 has sent, drops the first and takes the second. */
static void looks(size_t len)
{
	struct fi_context context;
	struct iovec iov = { .iov_base = in[0], .iov_len = len };
	struct fi_msg_tagged message = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 8, .context = &context,
	};

	if (!rank) {
		fill(out[0], len, 40);
		fill(out[1], len, 41);
		send_tag(out[0], len, 8, NULL);
		send_tag(out[1], len, 8, NULL);
		meet();
		ends(2);
		meet();
		return;
	}
	meet();
	await(&message);
	check("FI_PEEK | FI_DISCARD", fi_trecvmsg(ep, &message, FI_PEEK | FI_DISCARD));
	if (next().len != len)
		die("the first is not found");
	await(&message);
	check("FI_PEEK | FI_CLAIM", fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM));
	if (next().len != len)
		die("the second is not found");
	check("FI_PEEK", fi_trecvmsg(ep, &message, FI_PEEK));
	if (next().flags)
		die("a third is found");
	check("FI_CLAIM", fi_trecvmsg(ep, &message, FI_CLAIM));
	next();
	same(in[0], len, 41);
	meet();
}

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 256 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	char mine[1024], theirs[1024];
	size_t len = sizeof(mine), their_len;

	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("lnx");
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	printf("rank %d: %s, domain %s\n", rank, info->fabric_attr->prov_name, info->domain_attr->name);
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("bind av", fi_ep_bind(ep, &av->fid, 0));
	check("bind cq", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(ep));
	check("fi_getname", fi_getname(&ep->fid, mine, &len));
	whole(1, &len, sizeof(len));
	whole(1, mine, len);
	whole(0, &their_len, sizeof(their_len));
	if (their_len > sizeof(theirs))
		die("a name of %zu bytes", their_len);
	whole(0, theirs, their_len);
	if (fi_av_insert(av, theirs, 1, &peer, 0, NULL) != 1)
		die("the name of the other is not taken");
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

static void work(void)
{
	fi_addr_t from[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	out[0] = malloc(LONGEST);
	out[1] = malloc(LONGEST);
	for (size_t i = 0; i < SIZES; i++)
		in[i] = malloc(LONGEST);
	open_all();
	from[0] = FI_ADDR_UNSPEC;
	from[1] = peer;
	for (size_t i = 0; i < SIZES; i++)
		for (int late = 0; late < 2; late++)
			for (int directed = 0; directed < 2; directed++)
				both_ways(sizes[i], late, from[directed]);
	backwards();
	for (size_t i = 0; i < SIZES; i++)
		looks(sizes[i]);
	meet();
	check("close ep", fi_close(&ep->fid));
	check("close cq", fi_close(&cq->fid));
	check("close av", fi_close(&av->fid));
	check("close domain", fi_close(&domain->fid));
	check("close fabric", fi_close(&fabric->fid));
	printf("rank %d: %lu messages are right\n", rank, checked);
}

int main(void)
{
	int ends_of[2], status = 1;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends_of))
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	rank = !child;
	other = ends_of[rank];
	close(ends_of[!rank]);
	work();
	if (!child)
		return 0;
	waitpid(child, &status, 0);
	return status != 0;
}
