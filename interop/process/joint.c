/*
 * Messages that receiver and sender copy together: the sender polls while the receiver takes them.
 *
 *     joint PROVIDER both
 *
 * The log of the library (level info) says at the end how many were copied by both; the case reads it.
 */
#include "end.h"

#define MESSAGES 100
#define LEN ((1 << 20) + 5)

static struct board {
	volatile int named;
	struct name name;
} *board;

static struct want want;

static void be_sender(void)
{
	struct end end;
	fi_addr_t to;

	await_word(&board->named, 1, "the receiver's name");
	open_end(&want, &end);
	to = meet(&end, &board->name);
	for (unsigned number = 0; number < MESSAGES; number++)
		send_one(&end, to, 1, number, LEN);
	close_end(&end);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct end end;
	int pid;

	if (argc < 3)
		return 2;
	want = (struct want){ .provider = argv[1], .progress = FI_PROGRESS_MANUAL };
	board = shared(sizeof *board);
	pid = spawn("sender");
	if (!pid)
		be_sender();
	open_end(&want, &end);
	name_of(&end, &board->name);
	say(&board->named, 1);
	for (unsigned number = 0; number < MESSAGES; number++)
		receive_one(&end, 1, number, LEN);
	close_end(&end);
	ends_well(pid, "the sender", 60);
	printf("joint: complete\n");
	return 0;
}
