/*
 * What the stand-ins have in common: processes that know each other, a clock, and bytes that can be checked.
 *
 * It knows nothing of libfabric, so that a program which opens the library by dlopen can use it. A stand-in defines
 * `consumer`; main() is in frame.c. See usage() there.
 */
#ifndef STANDINS_FRAME_H
#define STANDINS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_RANKS 16
#define MAX_NOTE 512

struct consumer {
	const char *name;
	void (*run)(void);      /* one process, from the first call to the last; returns when everything is closed */
};

/* Defined by the stand-in. */
extern const struct consumer consumer;

/* What this process was told. */
extern const char *provider;
extern int ranks, me;

/* Ends this process, and with it the run, with a line that says why. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

/* Nothing can be tried here: the run ends as skipped. Only before anything was sent. */
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *format, ...);

/* Fails if a call of libfabric has returned an error; else what it returned. */
long check(long result, const char *what);

/* A number below `below`, another one in each run unless a seed was given. */
uint32_t pick(uint32_t below);

/* The same for everybody who asks for the same thing. */
uint64_t hash(uint64_t a, uint64_t b, uint64_t c);

/* Leaves bytes for the process `to`, and waits for those that `from` has left for us: the way around the library by which
 * a consumer's processes learn of each other. Each pair has one note in each direction. */
void leave_note(int to, const void *bytes, size_t len);
size_t take_note(int from, void *bytes);

/* Waits for all processes; the first time they meet, time begins. Nobody makes progress meanwhile, so all that was sent
 * is to be complete. */
void meet(void);

/* Whether time is over: whoever starts something starts nothing more. */
bool is_over(void);

/* Milliseconds until then, at least 0. */
int until_over(void);

/* Bytes that follow from `key`, and whether they are there; fails with what `what` says, and where, if not. */
void fill(void *buf, size_t len, uint64_t key);
void require(const void *buf, size_t len, uint64_t key, const char *what);

/* Counts one thing that was checked, with its bytes, and one that was started: what a run that hangs is told by. */
void count_checked(size_t bytes);
void count_started(void);

/* Whether a network interface other than loopback is there: without one no provider has FI_REMOTE_COMM. */
bool has_network(void);

#endif
