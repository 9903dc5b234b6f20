/* Odd environments arrive as they were given: none, empty, hundreds of
 * variables, duplicates, entries without "=", an LD_PRELOAD of its own. */
#include "common.h"
extern char **environ;
int main(int argc, char **argv)
{
	if (argc > 1) {
		unsigned sum = 0, count = 0;
		for (char **e = environ; e && *e; e++, count++)
			for (char *c = *e; *c; c++)
				sum = sum * 31 + *c;
		printf("%s: %u %u", argv[1], count, sum);
		for (char **e = environ; e && *e && count < 8; e++)
			printf(" [%s]", *e);
		char *preload = getenv("LD_PRELOAD"), *session = getenv("RUNAHEAD_SESSION");
		printf(" %s %s %u\n", preload ? preload : "-", session ? "session" : "-", ahead(4));
		return 0;
	}
	static char names[3000][16];
	static char *many[3001];
	for (int i = 0; i < 3000; i++)
		snprintf(many[i] = names[i], 16, "V%d=%d", i, i * i);
	char *few[300] = { 0 };
	memcpy(few, many, 254 * sizeof *few);
	static char longer[100001] = "L=";
	memset(longer + 2, 'x', sizeof longer - 3);
	char *cases[][8] = {
		{ NULL },
		{ "", NULL },
		{ "A=1", "A=2", "A=1", NULL },
		{ "noequals", "=x", "B=", NULL },
		{ "LD_PRELOAD=libm.so.6", "C=1", NULL },
		{ "LD_PRELOAD=", NULL },
		{ "LD_PRELOAD=libm.so.6 libpthread.so.0", "LD_PRELOAD=libdl.so.2", NULL },
		{ longer, "RUNAHEAD=on", NULL },
		{ "RUNAHEAD=off", "D=1", NULL },
	};
	int count = sizeof cases / sizeof *cases;
	for (int i = 0; i < count + 3; i++) {
		ahead(2);
		if (fork() == 0) {
			char name[16];
			snprintf(name, sizeof name, "case %d", i);
			char *args[] = { argv[0], name, NULL };
			execve("/proc/self/exe", args, i < count ? cases[i] : i == count ? many : i == count + 1 ? few : NULL);
			printf("%s failed: %d\n", name, errno);
			_exit(1);
		}
		int status;
		wait(&status);
		printf("%s\n", ended(status));
	}
}
