/*
 * Writes with FI_COMMIT_COMPLETE to a process that is killed, again and again: whatever was reported as committed must
 * have been made durable before.
 *
 *     crash FOLDER ROUNDS SEED {commit,failing,delivery}
 *
 * The target exposes a file that it has mapped. When it is killed the kernel still has what it wrote to the mapping, so
 * the file alone would prove nothing. Therefore a second file, the disk, stands for what a crash of the machine leaves:
 * the target's msync calls are trapped (seccomp), and only what such a call covers is copied from the mapping to the
 * disk, once the kernel has carried the call out. A write that is reported as committed must be on the disk, whole, at
 * the moment its completion is seen. So this shows that the library calls msync for all of a write, after its last byte
 * and before it acknowledges, and that it reports an error if the call fails ("failing"). That the kernel and a real
 * disk keep what msync promises is theirs. Under "delivery" the writes only ask to be delivered, and the disk must stay
 * empty: without the calls nothing gets there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define REGION (8u << 20)
#define LONGEST 12000
#define WINDOW 16
#define WRITES 4096
#define KEY 5
#define SECONDS 120             /* nothing may take longer */
#define OURS 0x52495053         /* fourth argument of an msync that is let through */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define ARG(u, n) ((u)->uc_mcontext.gregs[(n) == 0 ? REG_RDI : (n) == 1 ? REG_RSI : REG_RDX])
#define RESULT(u) ((u)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#define ARG(u, n) ((u)->uc_mcontext.regs[n])
#define RESULT(u) ((u)->uc_mcontext.regs[0])
#else
#error "say where this processor keeps the arguments of system calls"
#endif

/* What both processes see. */
struct shared {
	volatile int ready;
	volatile unsigned long calls;
	size_t name_len;
	uint8_t name[128];
};

struct write {
	struct fi_context2 context;
	size_t at, len;
	bool over, success;
};

static struct shared *shared;
static uint8_t *memory, *disk;
static bool failing;
static uint64_t state;

static void fail(const char *format, ...)
{
	va_list args;

	printf("ERROR ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	exit(1);
}

static void check(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%ld)", what, fi_strerror((int)-result), result);
}

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static uint64_t draw(uint64_t below)
{
	state = mix(state);
	return state % below;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Never 0, which is what the files hold at first. */
static uint8_t pattern(uint64_t round, size_t at)
{
	return (uint8_t)(mix(round << 32 | at / 8) >> (at % 8 * 8)) | 1;
}

/* A call of msync: carried out a little later, and then what it covers is on the disk. */
static void on_msync(int number, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uintptr_t start = (uintptr_t)ARG(u, 0), end, from = (uintptr_t)memory;
	struct timespec pause = { 0, (long)(mix(shared->calls) % 200000) };
	long result;

	(void)number;
	if (info->si_syscall != SYS_msync)
		abort();
	nanosleep(&pause, NULL);
	shared->calls++;
	if (failing && shared->calls % 3 == 0) {
		RESULT(u) = -EIO;
		return;
	}
	result = syscall(SYS_msync, start, ARG(u, 1), ARG(u, 2), OURS);
	if (!result && (ARG(u, 2) & MS_SYNC)) {
		end = start + (uintptr_t)ARG(u, 1);
		start = start < from ? from : start;
		end = end > from + REGION ? from + REGION : end;
		for (uintptr_t at = start; at < end; at++)
			disk[at - from] = memory[at - from];
	}
	RESULT(u) = result ? -errno : 0;
}

static void trap_msync(void)
{
	struct sigaction action = { .sa_sigaction = on_msync, .sa_flags = SA_SIGINFO };
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		printf("SKIP calls of msync cannot be trapped here: %s\n", strerror(errno));
		fflush(stdout);
		_exit(3);
	}
}

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

static void side_open(struct side *s)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	if (!hints)
		fail("no memory");
	hints->caps = FI_MSG | FI_RMA | FI_RMA_PMEM;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = 0;
	hints->fabric_attr->prov_name = strdup("tcp");
	check(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &s->info), "fi_getinfo");
	fi_freeinfo(hints);
	check(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	check(fi_domain(s->fabric, s->info, &s->domain, NULL), "fi_domain");
	check(fi_av_open(s->domain, &av, &s->av, NULL), "fi_av_open");
	check(fi_cq_open(s->domain, &cq, &s->cq, NULL), "fi_cq_open");
	check(fi_endpoint(s->domain, s->info, &s->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(s->ep, &s->av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(s->ep, &s->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind");
	check(fi_enable(s->ep), "fi_enable");
}

static void side_close(struct side *s)
{
	fi_close(&s->ep->fid);
	fi_close(&s->cq->fid);
	fi_close(&s->av->fid);
	fi_close(&s->domain->fid);
	fi_close(&s->fabric->fid);
	fi_freeinfo(s->info);
}

/* In a process of its own: serves until it is killed. */
static void target(void)
{
	struct fi_cq_entry entry;
	struct side s = { 0 };
	struct fid_mr *mr;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	trap_msync();
	side_open(&s);
	check(fi_mr_reg(s.domain, memory, REGION, FI_REMOTE_WRITE, 0, KEY, FI_RMA_PMEM, &mr, NULL), "fi_mr_reg");
	shared->name_len = sizeof shared->name;
	check(fi_getname(&s.ep->fid, shared->name, &shared->name_len), "fi_getname");
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	for (;;)
		if (fi_cq_read(s.cq, &entry, 1) == -FI_EAGAIN)
			sched_yield();
}

/* Reads completions; returns how many operations ended. */
static unsigned reap(struct side *s, unsigned *errors)
{
	struct fi_cq_entry entries[WINDOW];
	struct fi_cq_err_entry error = { 0 };
	struct write *w;
	ssize_t count = fi_cq_read(s->cq, entries, WINDOW);

	if (count == -FI_EAGAIN) {
		sched_yield();
		return 0;
	}
	if (count == -FI_EAVAIL) {
		check(fi_cq_readerr(s->cq, &error, 0), "fi_cq_readerr");
		w = error.op_context;
		if (!w || w->over)
			fail("an error of no write: %s", fi_strerror(error.err));
		w->over = true;
		++*errors;
		return 1;
	}
	check(count, "fi_cq_read");
	for (ssize_t i = 0; i < count; i++) {
		w = entries[i].op_context;
		if (!w || w->over)
			fail("a completion of no write");
		w->over = w->success = true;
	}
	return (unsigned)count;
}

static uint8_t *map(const char *folder, const char *name)
{
	char path[4096];
	uint8_t *mapped;
	int file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || ftruncate(file, REGION))
		fail("%s: %s", path, strerror(errno));
	mapped = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(file);
	return mapped;
}

static struct write writes[WRITES];
static unsigned long all_posted, all_acknowledged, all_refused, cut_short;

static bool is_there(const uint8_t *place, const struct write *w, uint64_t round)
{
	for (size_t i = w->at; i < w->at + w->len; i++)
		if (place[i] != pattern(round, i))
			return false;
	return true;
}

/* One life of the target. */
static void play(const char *folder, uint64_t round, uint64_t level)
{
	unsigned posted = 0, ended = 0, judged = 0, errors = 0, refused = 0;
	double began, first = 0, patience = (double)draw(30000) * 1e-6;
	uint8_t *source = malloc(REGION);
	fi_addr_t to;
	struct side s = { 0 };
	size_t at = 0;
	bool killed = false;
	pid_t child;

	if (!source)
		fail("no memory");
	memory = map(folder, "memory");
	disk = map(folder, "disk");
	memset(writes, 0, sizeof writes);
	memset(shared, 0, sizeof *shared);
	child = fork();
	if (child == 0)
		target();
	began = now();
	while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE)) {
		int status;

		if (waitpid(child, &status, WNOHANG) == child)
			exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
		if (now() - began > SECONDS)
			fail("the target does not start");
		usleep(1000);
	}
	side_open(&s);
	if (fi_av_insert(s.av, shared->name, 1, &to, 0, NULL) != 1)
		fail("fi_av_insert");
	while (!killed || ended < posted) {
		bool more = !killed && posted < WRITES && posted - ended < WINDOW && at + LONGEST < REGION;

		if (now() - began > SECONDS)
			fail("%u of %u writes have not ended", posted - ended, posted);
		if (more) {
			struct write *w = &writes[posted];
			size_t len = 1 + draw(draw(4) ? 200 : LONGEST), half = draw(len + 1);
			struct iovec local = { source + at, len };
			struct fi_rma_iov remote[2] = { { at, half, KEY }, { at + half, len - half, KEY } };
			struct fi_msg_rma message = {
				.msg_iov = &local, .iov_count = 1, .addr = to, .rma_iov = remote, .rma_iov_count = 2,
				.context = w,
			};
			long result;

			for (size_t i = at; i < at + len; i++)
				source[i] = pattern(round, i);
			result = fi_writemsg(s.ep, &message, level | FI_COMPLETION);
			if (result != -FI_EAGAIN) {
				check(result, "fi_writemsg");
				w->at = at;
				w->len = len;
				at += len;
				posted++;
			}
		}
		ended += reap(&s, &errors);
		/* Judged as soon as they are seen: what comes to the disk later is too late. */
		for (; judged < posted && writes[judged].over; judged++) {
			struct write *w = &writes[judged];
			bool there = is_there(disk, w, round);

			if (level == FI_COMMIT_COMPLETE && w->success && !there)
				fail("round %lu: %zu bytes at %zu were acknowledged, and a crash loses them",
				     (unsigned long)round, w->len, w->at);
			if (level == FI_DELIVERY_COMPLETE && there)
				fail("a write that nobody asked to be durable is: this test could not fail");
		}
		if (!first && ended)
			first = now();
		if (!killed && first && now() - first > patience) {
			cut_short += posted > ended;
			refused = errors;
			kill(child, SIGKILL);
			killed = true;
		}
	}
	waitpid(child, NULL, 0);
	for (unsigned i = 0; i < posted; i++)
		if (writes[i].success && (!is_there(memory, &writes[i], round) ||
					  (level == FI_COMMIT_COMPLETE && !is_there(disk, &writes[i], round))))
			fail("round %lu: %zu acknowledged bytes at %zu are not in the file", (unsigned long)round,
			     writes[i].len, writes[i].at);
	all_posted += posted;
	all_refused += refused;
	all_acknowledged += posted - errors;
	side_close(&s);
	munmap(memory, REGION);
	munmap(disk, REGION);
	free(source);
}

int main(int argc, char **argv)
{
	unsigned long rounds;
	uint64_t level;

	if (argc != 5)
		fail("crash FOLDER ROUNDS SEED {commit,failing,delivery}");
	rounds = strtoul(argv[2], NULL, 10);
	state = strtoul(argv[3], NULL, 10);
	failing = !strcmp(argv[4], "failing");
	level = strcmp(argv[4], "delivery") ? FI_COMMIT_COMPLETE : FI_DELIVERY_COMPLETE;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory");
	for (unsigned long round = 1; round <= rounds; round++)
		play(argv[1], round, level);
	if (!failing && all_refused)
		fail("%lu writes failed before their target was killed", all_refused);
	printf("crash: %lu rounds, %lu cut short; %lu writes, %lu acknowledged, %lu refused\n", rounds, cut_short,
	       all_posted, all_acknowledged, all_refused);
	return 0;
}
