/*
 * Runs a command whose processes may not reach the memory of others, as in a container whose filter of system calls
 * has neither process_vm_readv nor process_vm_writev: both say EPERM.
 *
 *     no-attach all|odd COMMAND [ARGUMENT...]
 *
 * With `odd` only on ranks of odd numbers (PMI_RANK).
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int forbid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
	const char *rank = getenv("PMI_RANK");
	int odd = argc > 1 && !strcmp(argv[1], "odd");

	if (argc < 3 || (!odd && strcmp(argv[1], "all")) || (odd && !rank)) {
		fprintf(stderr, "usage: no-attach all|odd COMMAND [ARGUMENT...], odd with PMI_RANK\n");
		return 2;
	}
	if ((!odd || atoi(rank) % 2) && forbid()) {
		fprintf(stderr, "no-attach: no seccomp filter: %s\n", strerror(errno));
		return 77;
	}
	execvp(argv[2], argv + 2);
	fprintf(stderr, "no-attach: %s: %s\n", argv[2], strerror(errno));
	return 127;
}
