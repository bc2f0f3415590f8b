/*
 * What the programs of this folder share: an endpoint with everything it needs, tagged messages that are checked, and
 * processes that are forked before anything is open and find each other by memory they share.
 *
 * A failed check prints one line and ends the process with status 1; what cannot be tried here prints `SKIP: reason` and
 * ends it with 77.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define MAX_NAME 256
#define SKIPPED 77

#define UNUSED __attribute__((unused))

/* How an endpoint is opened. */
struct want {
	const char *provider;
	const char *node;               /* tcp: the address it is bound to */
	enum fi_progress progress;
	enum fi_threading threading;
	enum fi_wait_obj wait;
	uint64_t caps;
};

/* An endpoint for reliable datagrams with everything it needs. */
struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_cntr *cntr;          /* counts what was received */
	struct fid_av *av;
	struct fid_ep *ep;
};

struct name {
	size_t len;
	unsigned char bytes[MAX_NAME];
};

static const char *who = "main";

UNUSED static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noreturn, format(printf, 1, 2))) UNUSED static void fail(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fflush(stdout);
	fprintf(stderr, "rank %s: %s\n", who, line);
	_exit(1);
}

__attribute__((noreturn, format(printf, 1, 2))) UNUSED static void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("SKIP: ");
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
	va_end(args);
	_exit(SKIPPED);
}

UNUSED static long check(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, fi_strerror((int)-result));
	return result;
}

UNUSED static bool is_tcp(const struct want *want)
{
	return !strncmp(want->provider, "tcp", 3);
}

/* Opens what there is; the first error, with `at` the call that gave it. What was opened before stays in `end`. */
UNUSED static int try_open(const struct want *want, struct end *end, const char **at)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = want->wait };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = want->wait };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	int ret;

	memset(end, 0, sizeof *end);
	*at = "fi_allocinfo";
	if (!hints)
		return -FI_ENOMEM;
	hints->caps = want->caps ? want->caps : FI_MSG | FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->threading = want->threading ? want->threading : FI_THREAD_SAFE;
	hints->domain_attr->data_progress = want->progress;
	hints->domain_attr->control_progress = want->progress;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(want->provider);
	*at = "fi_getinfo";
	ret = fi_getinfo(FI_VERSION(1, 17), is_tcp(want) ? (want->node ? want->node : "127.0.0.1") : NULL, NULL,
			 is_tcp(want) ? FI_SOURCE : 0, hints, &end->info);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	*at = "fi_fabric";
	if ((ret = fi_fabric(end->info->fabric_attr, &end->fabric, NULL)))
		return ret;
	*at = "fi_domain";
	if ((ret = fi_domain(end->fabric, end->info, &end->domain, NULL)))
		return ret;
	*at = "fi_cq_open";
	if ((ret = fi_cq_open(end->domain, &cq_attr, &end->cq, NULL)))
		return ret;
	*at = "fi_cntr_open";
	if ((ret = fi_cntr_open(end->domain, &cntr_attr, &end->cntr, NULL)))
		return ret;
	*at = "fi_av_open";
	if ((ret = fi_av_open(end->domain, &av_attr, &end->av, NULL)))
		return ret;
	*at = "fi_endpoint";
	if ((ret = fi_endpoint(end->domain, end->info, &end->ep, NULL)))
		return ret;
	*at = "fi_ep_bind";
	if ((ret = fi_ep_bind(end->ep, &end->av->fid, 0)) ||
	    (ret = fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV)) ||
	    (ret = fi_ep_bind(end->ep, &end->cntr->fid, FI_RECV)))
		return ret;
	*at = "fi_enable";
	return fi_enable(end->ep);
}

UNUSED static void open_end(const struct want *want, struct end *end)
{
	const char *at;
	int ret = try_open(want, end, &at);

	check(ret, at);
}

#define CLOSE(object) do { if (object) check(fi_close(&(object)->fid), "fi_close of " #object); object = NULL; } while (0)

/* Closes whatever is open. */
UNUSED static void close_end(struct end *end)
{
	CLOSE(end->ep);
	CLOSE(end->av);
	CLOSE(end->cntr);
	CLOSE(end->cq);
	CLOSE(end->domain);
	CLOSE(end->fabric);
	if (end->info)
		fi_freeinfo(end->info);
	end->info = NULL;
}

UNUSED static void name_of(struct end *end, struct name *name)
{
	name->len = MAX_NAME;
	check(fi_getname(&end->ep->fid, name->bytes, &name->len), "fi_getname");
}

UNUSED static fi_addr_t meet(struct end *end, const struct name *name)
{
	fi_addr_t address;

	if (fi_av_insert(end->av, name->bytes, 1, &address, 0, NULL) != 1)
		fail("fi_av_insert");
	return address;
}

/* What stands at `at` of message `number` of `from`. */
UNUSED static unsigned char filler(unsigned from, unsigned number, size_t at)
{
	return (unsigned char)(from * 131 + number * 7 + at * 13 + (at >> 12));
}

UNUSED static void fill(unsigned char *buf, unsigned from, unsigned number, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = filler(from, number, i);
}

UNUSED static void verify(const unsigned char *buf, unsigned from, unsigned number, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != filler(from, number, i))
			fail("byte %zu of message %u of %u is not what was sent", i, number, from);
}

/* One completion: 1, 0 if there is none; an error entry gives its negative error. */
UNUSED static int poll_one(struct end *end, struct fi_cq_tagged_entry *entry)
{
	ssize_t n = fi_cq_read(end->cq, entry, 1);

	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		check(fi_cq_readerr(end->cq, &error, 0), "fi_cq_readerr");
		entry->op_context = error.op_context;
		entry->flags = error.flags;
		return error.err ? -error.err : -FI_EOTHER;
	}
	return (int)check(n, "fi_cq_read");
}

/* The next completion: 1, or the error of the operation, or -FI_ETIMEDOUT after `seconds`. */
UNUSED static int complete(struct end *end, struct fi_cq_tagged_entry *entry, double seconds)
{
	double limit = now() + seconds;
	int n;

	while (!(n = poll_one(end, entry)))
		if (now() > limit)
			return -FI_ETIMEDOUT;
	return n;
}

/* `post` repeated while it says that it should be, with progress, for 20 s at most. */
#define POST(end, post) do { \
	struct fi_cq_tagged_entry posted_; \
	double posting_ = now() + 20; \
	ssize_t posted_ret_; \
	while ((posted_ret_ = (post)) == -FI_EAGAIN) { \
		int posted_n_ = poll_one(end, &posted_); \
		if (posted_n_) \
			fail("%s at %d: a completion (%d) that nobody waits for", #post, __LINE__, posted_n_); \
		if (now() > posting_) \
			fail("%s at %d: FI_EAGAIN for 20 s", #post, __LINE__); \
	} \
	check(posted_ret_, #post); \
} while (0)

/* Memory that all processes share. */
UNUSED static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return memory;
}

/* Waits until `word` is at least `value`, for 60 s at most. */
UNUSED static void await_word(volatile int *word, int value, const char *what)
{
	double limit = now() + 60;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
		if (now() > limit)
			fail("%s did not come", what);
		usleep(200);
	}
}

UNUSED static void say(volatile int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* A process of its own, which ends with us. 0 in it. */
UNUSED static int spawn(const char *name)
{
	int pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		who = name;
	}
	return pid;
}

/* The process ends with status 0 within `seconds`. */
UNUSED static void ends_well(int pid, const char *what, double seconds)
{
	double limit = now() + seconds;
	int status = 0, got;

	while (!(got = waitpid(pid, &status, WNOHANG))) {
		if (now() > limit) {
			kill(pid, SIGKILL);
			fail("%s did not end within %.0f s", what, seconds);
		}
		usleep(500);
	}
	if (got != pid)
		fail("waitpid for %s: %s", what, strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		_exit(SKIPPED);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("%s ended with %s %d", what, WIFSIGNALED(status) ? "signal" : "status",
		     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Sends message `number` of `from` with `len` bytes and waits for its completion. */
UNUSED static void send_one(struct end *end, fi_addr_t to, unsigned from, unsigned number, size_t len)
{
	unsigned char *buf = malloc(len + 1);
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	int n;

	fill(buf, from, number, len);
	POST(end, fi_tsend(end->ep, buf, len, NULL, to, (uint64_t)from << 32 | number, &context));
	n = complete(end, &entry, 30);
	if (n != 1)
		fail("send of message %u of %u: %s", number, from, fi_strerror(-n));
	free(buf);
}

/* Receives message `number` of `from` with `len` bytes and checks it. */
UNUSED static void receive_one(struct end *end, unsigned from, unsigned number, size_t len)
{
	unsigned char *buf = malloc(len + 1);
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	int n;

	POST(end, fi_trecv(end->ep, buf, len, NULL, FI_ADDR_UNSPEC, (uint64_t)from << 32 | number, 0, &context));
	n = complete(end, &entry, 30);
	if (n != 1)
		fail("receive of message %u of %u: %s", number, from, fi_strerror(-n));
	if (entry.len != len)
		fail("message %u of %u has %zu bytes, not %zu", number, from, entry.len, len);
	verify(buf, from, number, len);
	free(buf);
}

/* What whoever has started us left open is not ours to count. */
UNUSED static void forget_descriptors(void)
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

/* Open descriptors of this process. */
UNUSED static int descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 20000; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}
