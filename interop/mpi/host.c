/*
 * Preloaded into a program: it believes to run on the machine that INTEROP_HOST names, so that processes on one machine
 * take each other for processes on several.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static int put_name(char *place, size_t len)
{
	const char *name = getenv("INTEROP_HOST");

	if (!name)
		return 0;
	if (strlen(name) >= len) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(place, name);
	return 1;
}

int uname(struct utsname *names)
{
	int result = (int)syscall(SYS_uname, names);

	return result ? result : put_name(names->nodename, sizeof names->nodename) < 0 ? -1 : 0;
}

int gethostname(char *place, size_t len)
{
	struct utsname names;
	int given = put_name(place, len);

	if (given)
		return given < 0 ? -1 : 0;
	if (syscall(SYS_uname, &names))
		return -1;
	if (strlen(names.nodename) >= len) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(place, names.nodename);
	return 0;
}
