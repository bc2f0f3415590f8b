/*
 * A process under limits of the system, with a peer that has none: everything works by another way, or is refused with
 * a reason, and nobody hangs or is killed.
 *
 *     limits PROVIDER LIMIT
 *
 * Without files, and so without memory to share, there is no provider shm: fi_domain says so.
 *
 * LIMIT: `full-disk` there is no room in /dev/shm; `seccomp-eventfd` and `seccomp-epoll`: eventfd2 and epoll_create1 are
 * not allowed, so nothing can be waited for, and fi_domain says so; `few-files` few descriptors, when everything is opened and while peers come, and then as many as are needed;
 * `memlock` nothing may be locked; `file-size` no file may have a page; `no-proc` nothing is mounted on /proc;
 * `seccomp-attach` process_vm_readv, process_vm_writev and membarrier are not allowed (EPERM), `seccomp-attach-both` nor
 * are they to the peer; `seccomp-memory`
 * memfd_create is not there, `seccomp-old` nothing is there that old kernels lack (ENOSYS); `user` the peer is another
 * user.
 */
#include "end.h"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define PEERS 40
#define MESSAGES 20

static struct board {
	volatile int ready[PEERS + 1], done;
	/* Whose turn it is to write and read the other's memory, once that is exposed. */
	volatile int turn;
	struct name name[PEERS + 1];
	struct {
		uint64_t key, base;
	} exposed[2];
} *board;

static struct want want;

/* Answers `error` for each of the calls, and kills nobody. */
static void forbid(const int *calls, int count, int error)
{
	struct sock_filter filter[64];
	int n = 0;
	struct sock_fprog program = { .filter = filter };

	filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < count; i++) {
		filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
	}
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		skip("no seccomp filter: %s", strerror(errno));
}

static void set_limit(int resource, rlim_t most)
{
	struct rlimit limit;

	getrlimit(resource, &limit);
	limit.rlim_cur = most;
	if (setrlimit(resource, &limit))
		fail("setrlimit: %s", strerror(errno));
}

#define FILLER "/dev/shm/filler"

/* Nothing more goes into /dev/shm. */
static void fill_disk(void)
{
	static char page[4096];
	int fd = open(FILLER, O_CREAT | O_WRONLY | O_APPEND, 0600);

	if (fd < 0)
		fail(FILLER ": %s", strerror(errno));
	while (write(fd, page, sizeof page) > 0)
		;
	if (errno != ENOSPC)
		fail(FILLER ": %s", strerror(errno));
	close(fd);
}

static void impose(const char *limit)
{
	static const int attach[] = { SYS_process_vm_readv, SYS_process_vm_writev, SYS_membarrier };
	static const int memory[] = { SYS_memfd_create };
	static const int event[] = { SYS_eventfd2 }, set[] = { SYS_epoll_create1 };
	static const int old[] = { SYS_process_vm_readv, SYS_process_vm_writev, SYS_membarrier, SYS_pidfd_open,
		SYS_pidfd_send_signal, 441 /* epoll_pwait2 */, SYS_openat2, 436 /* close_range */, SYS_statx,
		SYS_copy_file_range, SYS_getrandom };

	if (!strncmp(limit, "seccomp-attach", 14))
		forbid(attach, 3, EPERM);
	else if (!strcmp(limit, "seccomp-memory"))
		forbid(memory, 1, EPERM);
	else if (!strcmp(limit, "seccomp-eventfd"))
		forbid(event, 1, EPERM);
	else if (!strcmp(limit, "seccomp-epoll"))
		forbid(set, 1, EPERM);
	else if (!strcmp(limit, "seccomp-old"))
		forbid(old, sizeof old / sizeof *old, ENOSYS);
	else if (!strcmp(limit, "memlock"))
		set_limit(RLIMIT_MEMLOCK, 0);
	else if (!strcmp(limit, "file-size"))
		/* Less than a page; our own output goes on. */
		set_limit(RLIMIT_FSIZE, 4000);
	else if (!strcmp(limit, "no-proc")) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", "/proc", "tmpfs", 0, NULL))
			skip("no mount namespace: %s", strerror(errno));
	} else if (!strcmp(limit, "full-disk")) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", "/dev/shm", "tmpfs", 0, "size=256k"))
			skip("no mount namespace: %s", strerror(errno));
		fill_disk();
	}
}

/* Messages of all sizes both ways, and writes and reads of remote memory, of an end that passes its target region. */
static void exchange(struct end *end, fi_addr_t to, unsigned me, unsigned other)
{
	static const size_t sizes[] = { 0, 8, 100, 5000, 9000, 16384, 100000, 300000, 3000000 };

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (me < other) {
			send_one(end, to, me, i, sizes[i]);
			receive_one(end, other, i, sizes[i]);
		} else {
			receive_one(end, other, i, sizes[i]);
			send_one(end, to, me, i, sizes[i]);
		}
	}
}

#define REGION (4u << 20)

static unsigned char *region;
static struct fid_mr *expose(struct end *end, int me)
{
	struct fid_mr *mr;

	region = calloc(1, REGION);
	check(fi_mr_reg(end->domain, region, REGION, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
	board->exposed[me].key = fi_mr_key(mr);
	board->exposed[me].base = end->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)region : 0;
	return mr;
}

/* Writes and reads memory of process `other`, which polls or computes meanwhile. */
static void reach(struct end *end, fi_addr_t to, int other)
{
	uint64_t key = board->exposed[other].key, base = board->exposed[other].base;
	unsigned char *local = malloc(REGION), *back = calloc(1, REGION);
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	int n;

	for (unsigned round = 0; round < 8; round++) {
		size_t len = round % 2 ? REGION : 20000;

		fill(local, 9, round, len);
		POST(end, fi_write(end->ep, local, len, NULL, to, base, key, &context));
		if ((n = complete(end, &entry, 30)) != 1)
			fail("fi_write: %s", fi_strerror(-n));
		POST(end, fi_read(end->ep, back, len, NULL, to, base, key, &context));
		if ((n = complete(end, &entry, 30)) != 1)
			fail("fi_read: %s", fi_strerror(-n));
		verify(back, 9, round, len);
	}
	free(local);
	free(back);
}

/* An address vector that others may share by its name is a file in /dev/shm. */
static int open_shared(struct end *end, size_t count, struct fid_av **av)
{
	char name[64];
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .count = count, .name = name };

	snprintf(name, sizeof name, "limits-%d", getpid());
	return fi_av_open(end->domain, &attr, av, NULL);
}

/* What needs the disk is refused, leaves nothing there, and works as soon as there is room. */
static void share_on_full_disk(struct end *end)
{
	struct fid_av *av;
	struct dirent *file;
	DIR *disk;
	int ret;

	for (size_t count = 1; count <= 1 << 14; count <<= 7) {
		ret = open_shared(end, count, &av);
		if (ret != -FI_ENOSPC)
			fail("fi_av_open of %zu on a full disk: %s", count, fi_strerror(-ret));
	}
	printf("limits: fi_av_open refused: %s\n", fi_strerror(-ret));
	disk = opendir("/dev/shm");
	while ((file = readdir(disk)))
		if (file->d_name[0] != '.' && strcmp(file->d_name, "filler"))
			fail("%s is left over", file->d_name);
	closedir(disk);
	if (unlink(FILLER))
		fail("unlink: %s", strerror(errno));
	check(open_shared(end, 64, &av), "fi_av_open with room");
	/* It has room for all it was opened for, whatever others do. */
	fill_disk();
	{
		struct name own;
		fi_addr_t address;

		name_of(end, &own);
		for (int i = 0; i < 64; i++)
			if (fi_av_insert(av, own.bytes, 1, &address, 0, NULL) != 1)
				fail("fi_av_insert of peer %d", i);
	}
	check(fi_close(&av->fid), "fi_close of the address vector");
	if (unlink(FILLER))
		fail("unlink: %s", strerror(errno));
}

/* Makes progress for the other process until that has said `value`. */
static void serve_until(struct end *end, volatile int *word, int value)
{
	struct fi_cq_tagged_entry entry;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
		if (poll_one(end, &entry))
			fail("a completion nobody waits for");
}

/* The other process, without a limit: it exchanges the same with us, in the order it was started. */
static void be_free(int number, const char *limit)
{
	struct end end;
	struct fid_mr *mr;
	fi_addr_t to;

	if (!strcmp(limit, "seccomp-attach-both"))
		impose(limit);
	open_end(&want, &end);
	mr = expose(&end, number);
	name_of(&end, &board->name[number]);
	say(&board->ready[number], 1);
	await_word(&board->ready[0], 1, "the name of the limited process");
	to = meet(&end, &board->name[0]);
	exchange(&end, to, (unsigned)number, 0);
	/* Computes for a while, so that who reaches our memory may look for another way. */
	for (int i = 0; i < 4; i++) {
		struct fi_cq_tagged_entry entry;
		double until = now() + 0.02;

		while (now() < until)
			;
		if (poll_one(&end, &entry))
			fail("a completion nobody waits for");
	}
	serve_until(&end, &board->turn, 1);
	reach(&end, to, 0);
	say(&board->turn, 2);
	serve_until(&end, &board->done, 1);
	check(fi_close(&mr->fid), "fi_close of the region");
	close_end(&end);
	_exit(0);
}

static void be_limited(const char *limit)
{
	struct end end;
	struct fid_mr *mr;
	fi_addr_t to;
	const char *at;
	int refusal;

	await_word(&board->ready[1], 1, "the peer's name");
	impose(limit);
	refusal = !is_tcp(&want) && !strcmp(limit, "file-size") ? EFBIG
		: !is_tcp(&want) && !strcmp(limit, "seccomp-memory") ? EPERM
		: !strcmp(limit, "seccomp-eventfd") || !strcmp(limit, "seccomp-epoll") ? EPERM : 0;
	if (refusal) {
		/* Without memory to share there is no shm: that is said at once, and in the log. */
		int ret = try_open(&want, &end, &at);

		if (ret != -refusal)
			fail("%s: %s instead of %s", at, fi_strerror(-ret), strerror(refusal));
		printf("limits: %s refused: %s\n", at, fi_strerror(-ret));
		fflush(stdout);
		close_end(&end);
		_exit(0);
	}
	open_end(&want, &end);
	mr = expose(&end, 0);
	name_of(&end, &board->name[0]);
	to = meet(&end, &board->name[1]);
	say(&board->ready[0], 1);
	exchange(&end, to, 0, 1);
	reach(&end, to, 1);
	say(&board->turn, 1);
	serve_until(&end, &board->turn, 2);
	if (!strcmp(limit, "full-disk"))
		share_on_full_disk(&end);
	say(&board->done, 1);
	check(fi_close(&mr->fid), "fi_close of the region");
	close_end(&end);
	_exit(0);
}

/* With `room` descriptors more than are in use. */
static void leave_room(int room)
{
	int highest = 2;

	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			highest = fd;
	set_limit(RLIMIT_NOFILE, (rlim_t)(highest + 1 + room));
}

/* Opening fails at whatever call, or not; what was opened closes, and nothing is left over. */
static void open_with_few(void)
{
	int before, opened = 0, refused = 0;

	/* What the library keeps for the whole process. */
	{
		struct end end;

		open_end(&want, &end);
		close_end(&end);
	}
	before = descriptors();
	for (int room = 0; room < 40; room++) {
		struct end end;
		const char *at;
		int ret;

		leave_room(room);
		ret = try_open(&want, &end, &at);
		if (ret) {
			refused++;
			if (ret != -FI_EMFILE && ret != -FI_ENODATA)
				fail("with %d descriptors %s says %s", room, at, fi_strerror(-ret));
		} else {
			opened++;
		}
		close_end(&end);
		set_limit(RLIMIT_NOFILE, 4096);
		if (descriptors() > before)
			fail("with room for %d, %d descriptors are left over", room, descriptors() - before);
	}
	printf("limits: %d of 40 opened, %d refused\n", opened, refused);
	if (!opened || !refused)
		fail("a limit that nothing meets");
}

/* One of many peers, each of which sends one message and gets an answer or an error. */
static void be_one_of_many(int number)
{
	struct end end;
	fi_addr_t to;
	unsigned char word[64];
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	double began;
	ssize_t ret;
	int n;

	await_word(&board->ready[0], 1, "the server's name");
	open_end(&want, &end);
	to = meet(&end, &board->name[0]);
	fill(word, (unsigned)number, 0, sizeof word);
	began = now();
	while ((ret = fi_tsend(end.ep, word, sizeof word, NULL, to, (uint64_t)number, &context)) == -FI_EAGAIN)
		poll_one(&end, &entry);
	check(ret, "fi_tsend");
	n = complete(&end, &entry, 30);
	if (n == -FI_ETIMEDOUT && now() - began > 29)
		fail("neither sent nor refused in 30 s");
	__atomic_add_fetch(n == 1 ? &board->ready[1] : &board->ready[2], 1, __ATOMIC_SEQ_CST);
	if (n != 1) {
		struct fi_cq_tagged_entry again;

		printf("peer %d: %s after %.2f s\n", number, fi_strerror(-n), now() - began);
		/* The server has room again after a while; then the same endpoint gets through. */
		await_word(&board->ready[3], 1, "the word that there is room");
		began = now();
		do {
			while ((ret = fi_tsend(end.ep, word, sizeof word, NULL, to, (uint64_t)number, &context)) ==
			       -FI_EAGAIN)
				poll_one(&end, &again);
			check(ret, "fi_tsend");
			n = complete(&end, &again, 30);
			if (now() - began > 30)
				fail("still refused: %s", fi_strerror(-n));
		} while (n != 1);
	}
	await_word(&board->done, 1, "the server's end");
	close_end(&end);
	_exit(0);
}

/* Serves PEERS peers with descriptors for some of them; those it has go on, the rest learn that, and it lives. */
static void serve_with_few(void)
{
	static unsigned char buf[PEERS + 1][64];
	struct fi_context2 context[PEERS + 1];
	struct fi_cq_tagged_entry entry;
	struct end end;
	int pid[PEERS + 1], received = 0;
	double limit;

	for (int i = 1; i <= PEERS; i++) {
		pid[i] = spawn("peer");
		if (!pid[i])
			be_one_of_many(i);
	}
	who = "server";
	open_end(&want, &end);
	for (int i = 1; i <= PEERS; i++)
		POST(&end, fi_trecv(end.ep, buf[i], 64, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, &context[i]));
	name_of(&end, &board->name[0]);
	leave_room(20);
	say(&board->ready[0], 1);
	limit = now() + 40;
	while (received < PEERS) {
		int n = poll_one(&end, &entry);

		if (n < 0)
			fail("a receive failed: %s", fi_strerror(-n));
		if (n) {
			verify(buf[entry.tag], (unsigned)entry.tag, 0, 64);
			received++;
		}
		/* Everybody has an answer: now there is room. */
		if (!board->ready[3] && __atomic_load_n(&board->ready[1], __ATOMIC_SEQ_CST) +
		    __atomic_load_n(&board->ready[2], __ATOMIC_SEQ_CST) == PEERS) {
			printf("limits: %d peers sent at first, %d were refused\n", board->ready[1], board->ready[2]);
			set_limit(RLIMIT_NOFILE, 4096);
			say(&board->ready[3], 1);
		}
		if (now() > limit)
			fail("only %d messages in 40 s; %d peers sent, %d were refused", received, board->ready[1],
			     board->ready[2]);
	}
	if (!board->ready[2])
		fail("a limit that nothing meets");
	say(&board->done, 1);
	for (int i = 1; i <= PEERS; i++) {
		double until = now() + 20;
		int status;

		while (!waitpid(pid[i], &status, WNOHANG)) {
			poll_one(&end, &entry);
			if (now() > until)
				fail("peer %d does not end", i);
		}
		if (status)
			fail("peer %d ended with status %#x", i, (unsigned)status);
	}
	close_end(&end);
}

/* Two processes of different users. Over tcp they are like any others; over shm each refuses the other. */
static void users(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_context2 context;
	unsigned char word[64] = { 0 };
	struct end end;
	fi_addr_t to;
	double began;
	ssize_t ret;
	int pid, n;

	if (geteuid())
		skip("only root can be another user");
	pid = spawn("other");
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			fail("setuid: %s", strerror(errno));
		open_end(&want, &end);
		name_of(&end, &board->name[1]);
		say(&board->ready[1], 1);
		if (is_tcp(&want))
			receive_one(&end, 7, 0, 64);
		while (!__atomic_load_n(&board->done, __ATOMIC_ACQUIRE))
			if (poll_one(&end, &entry))
				fail("a completion nobody waits for");
		close_end(&end);
		_exit(0);
	}
	who = "root";
	await_word(&board->ready[1], 1, "the name of the other user's process");
	open_end(&want, &end);
	to = meet(&end, &board->name[1]);
	if (is_tcp(&want)) {
		send_one(&end, to, 7, 0, 64);
	} else {
		began = now();
		while ((ret = fi_tsend(end.ep, word, sizeof word, NULL, to, 7ull << 32, &context)) == -FI_EAGAIN)
			poll_one(&end, &entry);
		n = ret ? (int)ret : complete(&end, &entry, 20);
		printf("limits: a peer of another user: %s after %.2f s\n", fi_strerror(-n), now() - began);
		if (n != -FI_EACCES)
			fail("a peer of another user is not refused with FI_EACCES but with %d", n);
	}
	say(&board->done, 1);
	ends_well(pid, "the other user's process", 20);
	close_end(&end);
}

int main(int argc, char **argv)
{
	int peer, pid;

	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .caps = FI_MSG | FI_TAGGED | FI_RMA };
	forget_descriptors();
	board = shared(sizeof *board);
	set_limit(RLIMIT_NOFILE, 4096);
	if (!strcmp(argv[2], "few-files")) {
		open_with_few();
		serve_with_few();
	} else if (!strcmp(argv[2], "user")) {
		users();
	} else {
		peer = spawn("peer");
		if (!peer)
			be_free(1, argv[2]);
		pid = spawn("limited");
		if (!pid)
			be_limited(argv[2]);
		ends_well(pid, "the limited process", 60);
		if (__atomic_load_n(&board->done, __ATOMIC_ACQUIRE)) {
			ends_well(peer, "its peer", 60);
		} else {
			kill(peer, SIGKILL);
			waitpid(peer, NULL, 0);
		}
	}
	printf("limits: complete\n");
	return 0;
}
