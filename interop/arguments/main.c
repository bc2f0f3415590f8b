/*
 * What a libfabric says to arguments that programs seldom pass.
 *
 *     arguments PROVIDER TYPE GROUP [CASE]      tcp|shm  msg|rdm
 *
 * Each call of the group is made as a program makes it as a rule, and then with one thing changed: each pointer NULL,
 * each number 0 and the maximum, each value of an enum, each flag alone and in pairs; parameters, and the fields of what
 * they point to. A line for each case says what came of it:
 *
 *     fi_cq_open attr->size=max: -22 silent
 *
 * The number is what the call returned; `silent` that it was an error without a line on the standard error output, where
 * the log of the library goes; behind that stands what else is to be said, such as how the operation ended. A case in which
 * the process died says `signal NUMBER`, one that did not come back `blocks`.
 *
 * Cases run in processes of this one, which only counts them: the next process goes on with the case after that which
 * ended the last one. Exit status 0 if all cases have run, whatever they said.
 */
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"

/* Seconds in which a call comes back, on a machine that does much else. */
#define PATIENCE 20

static const struct group *const groups[] = { &getinfo_group, &open_group, &msg_group, &rma_group,
	&atomic_group, &control_group, &collective_group, &connect_group, &objects_group, &work_group };

/* What the processes share. */
static struct board {
	unsigned begun;		/* the case that was begun last; the first one is 1 */
	bool running;		/* and it has not ended */
	bool through;		/* there are no more */
	char name[512];
} *board;

static unsigned at, from;
static bool alone;
static const char *only;
static off_t logged;
static char remarks[512];

static off_t log_size(void)
{
	struct stat stat;

	fflush(stderr);
	return fstat(STDERR_FILENO, &stat) ? 0 : stat.st_size;
}

bool trial(const char *call, const char *path, const char *value)
{
	if (++at < from)
		return false;
	snprintf(board->name, sizeof board->name, "%s %s%s%s", call, path, *path ? "=" : "", value);
	if (only && strcmp(only, board->name))
		return false;
	board->begun = at;
	board->running = true;
	remarks[0] = '\0';
	logged = log_size();
	alarm(PATIENCE);
	return true;
}

void remark(const char *format, ...)
{
	const size_t used = strlen(remarks);
	va_list list;

	va_start(list, format);
	vsnprintf(remarks + used, sizeof remarks - used, format, list);
	va_end(list);
}

void forget(void)
{
	remarks[0] = '\0';
}

void result(long returned)
{
	alarm(0);
	printf("%s: %ld%s%s\n", board->name, returned,
	       returned < 0 && returned != -FI_EAGAIN && log_size() == logged ? " silent" : "", remarks);
	fflush(stdout);
	board->running = false;
	if (alone && returned >= 0)
		_exit(0);
}

void require(long returned, const char *what)
{
	if (!returned)
		return;
	printf("cannot go on: %s: %ld\n", what, returned);
	fflush(stdout);
	_exit(2);
}

/* The rest of the cases, in this process. */
static void run(const struct group *group)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	group->open();
	alone = group->alone;
	for (const struct call *call = group->calls; call->name; call++)
		try_all(call);
	board->through = true;
	_exit(0);
}

/* Removes what the shared memory of a process is called by C libraries, which leave it there if the process dies. */
static void sweep(pid_t pid)
{
	char pattern[64];
	glob_t found;

	snprintf(pattern, sizeof pattern, "/dev/shm/%d:*", (int)pid);
	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t n = 0; n < found.gl_pathc; n++)
		unlink(found.gl_pathv[n]);
	globfree(&found);
}

static const struct group *named(const char *name)
{
	for (size_t n = 0; n < sizeof groups / sizeof *groups; n++)
		if (!strcmp(groups[n]->name, name))
			return groups[n];
	fprintf(stderr, "no group is called %s\n", name);
	exit(2);
}

int main(int count, char **words)
{
	const struct group *group;

	if (count < 4 || count > 5) {
		fprintf(stderr, "usage: arguments PROVIDER msg|rdm GROUP [CASE]\n");
		return 2;
	}
	group = named(words[3]);
	only = words[4];
	rig.provider = words[1];
	rig.type = strcmp(words[2], "msg") ? FI_EP_RDM : FI_EP_MSG;
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 2;
	while (!board->through) {
		int status;
		pid_t child;

		from = board->begun + 1;
		child = fork();
		if (!child)
			run(group);
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 2;
		sweep(child);
		if (board->running) {
			if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
				printf("%s: blocks\n", board->name);
			else if (WIFSIGNALED(status))
				printf("%s: signal %d\n", board->name, WTERMSIG(status));
			else
				printf("%s: exit %d\n", board->name, WEXITSTATUS(status));
			fflush(stdout);
			board->running = false;
		} else if (status) {
			printf("after %s: status %d\n", board->name, status);
			return 2;
		}
	}
	return 0;
}
