/*
 * Messages and regions above 2 and 4 GiB between two processes.
 *
 *     large PROVIDER WHAT
 *
 * WHAT: `message` one message of 4.1 GiB, which is received whole; `write` and `read` one operation of that length on a
 * region of that length; `edges` many small ones, on both sides of 2 and 4 GiB and at the end of the region; `limit`
 * what max_msg_size refuses. The memory is of zero pages but for words at its ends and around 2 and 4 GiB.
 */
#include "end.h"

#define GIB (1ull << 30)
#define LEN (4 * GIB + GIB / 10 + 13)
#define WORD 64

static const uint64_t places[] = { 0, 4096 + 13, GIB, 2 * GIB - WORD / 2, 2 * GIB + 8192, 3 * GIB + 1, 4 * GIB - WORD / 2,
	4 * GIB + 4096, LEN - WORD };
#define PLACES (sizeof places / sizeof *places)

static struct board {
	volatile int ready, done;
	struct name name[2];
	uint64_t key, base;
} *board;

static struct want want;

/* Pages that are there when they are touched: who only sends does not write to them. */
static unsigned char *sparse(void)
{
	unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		skip("no address space for %llu bytes", (unsigned long long)LEN);
	/* Fewer faults; without large pages it takes longer. */
	madvise(memory, LEN, MADV_HUGEPAGE);
	return memory;
}

static void put_words(unsigned char *memory, unsigned from)
{
	for (unsigned i = 0; i < PLACES; i++)
		fill(memory + places[i], from, i, WORD);
}

/* The words are there, and zeroes between them (looked at page by page). */
static void check_words(const unsigned char *memory, unsigned from)
{
	for (unsigned i = 0; i < PLACES; i++)
		verify(memory + places[i], from, i, WORD);
	for (uint64_t at = 2048; at < LEN; at += 1 << 20) {
		bool in_word = false;

		for (unsigned i = 0; i < PLACES; i++)
			in_word |= at >= places[i] && at < places[i] + WORD;
		if (!in_word && memory[at])
			fail("byte %llu is not zero", (unsigned long long)at);
	}
}

static void finish(struct end *end, const char *what)
{
	struct fi_cq_tagged_entry entry;
	int n = complete(end, &entry, 60);

	if (n != 1)
		fail("%s: %s", what, fi_strerror(-n));
}

static void be_target(const char *what)
{
	unsigned char *memory = sparse();
	struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	struct fid_mr *mr = NULL;
	struct end end;
	int n;

	open_end(&want, &end);
	if (!strcmp(what, "message")) {
		POST(&end, fi_trecv(end.ep, memory, LEN, NULL, FI_ADDR_UNSPEC, 1, 0, &context));
	} else {
		if (!strcmp(what, "read"))
			put_words(memory, 2);
		check(fi_mr_reg(end.domain, memory, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
		board->key = fi_mr_key(mr);
		board->base = end.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	}
	name_of(&end, &board->name[1]);
	say(&board->ready, 1);
	if (!mr) {
		n = complete(&end, &entry, 60);
		if (n != 1)
			fail("receive: %s", fi_strerror(-n));
		if (entry.len != LEN)
			fail("%zu bytes received", entry.len);
	}
	while (!__atomic_load_n(&board->done, __ATOMIC_ACQUIRE))
		if (poll_one(&end, &entry))
			fail("a completion nobody waits for");
	if (strcmp(what, "read") && strcmp(what, "limit"))
		check_words(memory, 2);
	if (mr)
		check(fi_close(&mr->fid), "fi_close of the region");
	close_end(&end);
	_exit(0);
}

static void refused(ssize_t ret, const char *what)
{
	if (ret != -FI_EMSGSIZE && ret != -FI_EINVAL && ret != -FI_E2BIG)
		fail("%s above the greatest length: %s", what, fi_strerror((int)-ret));
	printf("large: %s above the greatest length: %s\n", what, fi_strerror((int)-ret));
}

int main(int argc, char **argv)
{
	struct fi_context2 context;
	unsigned char *memory;
	struct end end;
	fi_addr_t to;
	size_t most;
	int pid;

	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .caps = FI_MSG | FI_TAGGED | FI_RMA };
	board = shared(sizeof *board);
	pid = spawn("target");
	if (!pid)
		be_target(argv[2]);
	memory = sparse();
	await_word(&board->ready, 1, "the target's name");
	open_end(&want, &end);
	most = end.info->ep_attr->max_msg_size;
	printf("large: max_msg_size is %zu\n", most);
	if (most < LEN)
		skip("max_msg_size is %zu", most);
	to = meet(&end, &board->name[1]);
	if (!strcmp(argv[2], "message")) {
		put_words(memory, 2);
		POST(&end, fi_tsend(end.ep, memory, LEN, NULL, to, 1, &context));
		finish(&end, "send");
	} else if (!strcmp(argv[2], "write")) {
		struct iovec iov = { memory, LEN };
		struct fi_rma_iov there = { board->base, LEN, board->key };
		struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &there,
			.rma_iov_count = 1, .context = &context };

		put_words(memory, 2);
		POST(&end, fi_writemsg(end.ep, &msg, FI_DELIVERY_COMPLETE));
		finish(&end, "write");
	} else if (!strcmp(argv[2], "read")) {
		POST(&end, fi_read(end.ep, memory, LEN, NULL, to, board->base, board->key, &context));
		finish(&end, "read");
		check_words(memory, 2);
	} else if (!strcmp(argv[2], "edges")) {
		unsigned char back[WORD];

		put_words(memory, 2);
		for (unsigned i = 0; i < PLACES; i++) {
			POST(&end, fi_write(end.ep, memory + places[i], WORD, NULL, to, board->base + places[i], board->key,
					    &context));
			finish(&end, "write");
			POST(&end, fi_read(end.ep, back, WORD, NULL, to, board->base + places[i], board->key, &context));
			finish(&end, "read");
			verify(back, 2, i, WORD);
		}
		/* One byte beyond the end, and before the beginning, where the end wraps. */
		for (int i = 0; i < 2; i++) {
			struct fi_cq_tagged_entry entry;
			uint64_t at = i ? -8ull : LEN - WORD + 1;
			size_t len = WORD;
			struct iovec iov = { memory, len };
			struct fi_rma_iov there = { board->base + at, len, board->key };
			struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &there,
				.rma_iov_count = 1, .context = &context };
			int n;

			/* Only then it has to be told what became of it. */
			POST(&end, fi_writemsg(end.ep, &msg, FI_DELIVERY_COMPLETE));
			n = complete(&end, &entry, 60);
			if (n != -FI_EACCES && n != -FI_EINVAL && n != -FI_EREMOTEIO && n != -FI_ENOKEY && n != -FI_EIO &&
			    n != -FI_EPERM && n != -EFAULT)
				fail("a write beyond the region: %d", n);
			printf("large: a write beyond the region: %s\n", fi_strerror(-n));
		}
	} else {
		if (most == SIZE_MAX)
			skip("no length is above the greatest");
		refused(fi_tsend(end.ep, memory, most + 1, NULL, to, 1, &context), "a message");
		refused(fi_write(end.ep, memory, most + 1, NULL, to, board->base, board->key, &context), "a write");
		refused(fi_read(end.ep, memory, most + 1, NULL, to, board->base, board->key, &context), "a read");
	}
	say(&board->done, 1);
	ends_well(pid, "the target", 60);
	close_end(&end);
	printf("large: complete\n");
	return 0;
}
