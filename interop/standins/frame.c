#define _GNU_SOURCE
#include "frame.h"

#include <getopt.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77      /* the exit status of a process that cannot be tried here */

struct note {
	volatile int there;
	size_t len;
	unsigned char bytes[MAX_NOTE];
};

/* What all processes see. */
struct board {
	volatile int met;
	volatile double end;
	volatile uint64_t started[MAX_RANKS], checked[MAX_RANKS], bytes[MAX_RANKS];
	struct note note[MAX_RANKS][MAX_RANKS];
};

const char *provider = "tcp";
int ranks = 2, me = -1;
static int seconds = 3;
static uint64_t seed;
static struct board *board;
static __thread uint64_t state_of_random;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

void fail(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fprintf(stderr, "rank %d: %s\n", me, line);
	_exit(1);
}

void skip(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (me == 0)
		printf("SKIP %s\n", line);
	fflush(stdout);
	_exit(SKIPPED);
}

long check(long result, const char *what)
{
	if (result < 0)
		fail("%s: %ld (%s)", what, result, strerror((int)-result));
	return result;
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(a ^ seed) ^ b) ^ c);
}

uint32_t pick(uint32_t below)
{
	if (!state_of_random)
		state_of_random = hash((uint64_t)me + 1, (uintptr_t)&state_of_random, 0) | 1;
	state_of_random = mix(state_of_random) | 1;
	return below ? (uint32_t)(state_of_random >> 16) % below : 0;
}

void leave_note(int to, const void *bytes, size_t len)
{
	struct note *note = &board->note[me][to];

	if (len > MAX_NOTE)
		fail("a note of %zu bytes", len);
	memcpy(note->bytes, bytes, len);
	note->len = len;
	__atomic_store_n(&note->there, 1, __ATOMIC_RELEASE);
}

size_t take_note(int from, void *bytes)
{
	struct note *note = &board->note[from][me];

	while (!__atomic_load_n(&note->there, __ATOMIC_ACQUIRE))
		usleep(200);
	memcpy(bytes, note->bytes, note->len);
	return note->len;
}

void meet(void)
{
	static int meetings;
	int all = ranks * ++meetings;

	if (__atomic_add_fetch(&board->met, 1, __ATOMIC_ACQ_REL) == ranks)
		board->end = now() + seconds;
	while (__atomic_load_n(&board->met, __ATOMIC_ACQUIRE) < all || board->end == 0)
		usleep(200);
}

bool is_over(void)
{
	return now() >= board->end;
}

int until_over(void)
{
	double left = board->end - now();

	return left > 0 ? (int)(left * 1000) + 1 : 0;
}

void fill(void *buf, size_t len, uint64_t key)
{
	unsigned char *at = buf;
	uint64_t word = mix(key);

	for (; len >= 8; at += 8, len -= 8, word += 0x9e3779b97f4a7c15u)
		memcpy(at, &word, 8);
	memcpy(at, &word, len);
}

void require(const void *buf, size_t len, uint64_t key, const char *what)
{
	const unsigned char *at = buf;
	uint64_t word = mix(key);
	size_t done = 0;

	for (; done + 8 <= len; done += 8, word += 0x9e3779b97f4a7c15u)
		if (memcmp(at + done, &word, 8))
			break;
	for (size_t i = 0; done < len && i < 8; i++, done++)
		if (at[done] != ((unsigned char *)&word)[i])
			fail("%s: byte %zu of %zu is wrong", what, done, len);
}

void count_checked(size_t bytes)
{
	__atomic_fetch_add(&board->checked[me], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&board->bytes[me], bytes, __ATOMIC_RELAXED);
}

void count_started(void)
{
	__atomic_fetch_add(&board->started[me], 1, __ATOMIC_RELAXED);
}

bool has_network(void)
{
	struct ifaddrs *all, *one;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (one = all; one; one = one->ifa_next)
		found |= one->ifa_addr && (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6) &&
			 (one->ifa_flags & IFF_UP) && !(one->ifa_flags & IFF_LOOPBACK);
	freeifaddrs(all);
	return found;
}

static void usage(void)
{
	printf("%s [-p PROVIDER] [-n PROCESSES] [-t SECONDS] [-s SEED]\n"
	       "  Processes of this machine exchange for so many seconds, in the way of %s; every byte is checked.\n"
	       "  60 s later at the latest all have ended, or the run has failed.\n",
	       consumer.name, consumer.name);
	exit(2);
}

int main(int argc, char **argv)
{
	int pids[MAX_RANKS], option, left, skipped = 0, failed = 0;
	uint64_t checked = 0, bytes = 0;
	struct timespec t;
	double limit;

	clock_gettime(CLOCK_REALTIME, &t);
	seed = (uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec;
	while ((option = getopt(argc, argv, "p:n:t:s:")) != -1) {
		switch (option) {
		case 'p': provider = optarg; break;
		case 'n': ranks = atoi(optarg); break;
		case 't': seconds = atoi(optarg); break;
		case 's': seed = strtoull(optarg, NULL, 10); break;
		default: usage();
		}
	}
	if (ranks < 2 || ranks > MAX_RANKS || seconds < 1)
		usage();
	printf("%s: seed %llu\n", consumer.name, (unsigned long long)seed);
	fflush(stdout);
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	for (int rank = 0; rank < ranks; rank++) {
		pids[rank] = fork();
		if (pids[rank] < 0) {
			perror("fork");
			return 2;
		}
		if (pids[rank] == 0) {
			me = rank;
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			consumer.run();
			exit(0);
		}
	}
	limit = now() + seconds + 60;
	for (left = ranks; left > 0;) {
		int status, pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0) {
			if (now() > limit) {
				fprintf(stderr, "error: not finished %d s after the end\n", 60);
				failed++;
				break;
			}
			usleep(1000);
			continue;
		}
		left--;
		for (int rank = 0; rank < ranks; rank++)
			if (pids[rank] == pid)
				pids[rank] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
			skipped++;
		} else if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "error: a process ended with status %#x\n", (unsigned)status);
			failed++;
			break;
		}
	}
	for (int rank = 0; rank < ranks; rank++) {
		if (failed)
			fprintf(stderr, "rank %d%s: %llu started, %llu checked\n", rank, pids[rank] ? " (still there)" : "",
				(unsigned long long)board->started[rank], (unsigned long long)board->checked[rank]);
		if (pids[rank]) {
			kill(pids[rank], SIGKILL);
			waitpid(pids[rank], NULL, 0);
		}
		checked += board->checked[rank];
		bytes += board->bytes[rank];
	}
	if (failed)
		return 1;
	if (skipped)
		return SKIPPED;
	printf("%s: %d processes, %llu checked, %llu bytes\n", consumer.name, ranks, (unsigned long long)checked,
	       (unsigned long long)bytes);
	return 0;
}
