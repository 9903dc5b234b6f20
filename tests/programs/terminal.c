/* A terminal of its own with job control: the shell's side gives it to one
 * group and another, which read files and the terminal; a read in the
 * background stops, Ctrl-C reaches the group in front, the end hangs up. */
#include "common.h"
#include <termios.h>
#include <sys/ioctl.h>
static volatile sig_atomic_t interrupts;
static void interrupted(int signal) { interrupts++; }
static void session(const char *name)
{
	CHECK(setsid() == getpid());
	int terminal = open(name, O_RDWR), status;
	CHECK(terminal >= 0 && ioctl(terminal, TIOCSCTTY, 0) == 0);
	signal(SIGTTOU, SIG_IGN);
	for (int round = 0; round < 4; round++) {
		char line[32] = "";
		pid_t job = fork();
		if (job == 0) {
			setpgid(0, 0);
			signal(SIGINT, interrupted);
			unsigned sum = ahead(10);
			/* In the background at first: stopped by SIGTTIN. */
			ssize_t got = read(terminal, line, sizeof line - 1);
			printf("%zd %u ", got, sum);
			write(3, "r", 1);
			while (!interrupts)
				ahead(2);
			printf("%d\n", tcgetpgrp(terminal) == getpgrp());
			_exit(round);
		}
		setpgid(job, job);
		ahead(3);
		CHECK(waitpid(job, &status, WUNTRACED) == job);
		printf("%s ", ended(status));
		CHECK(tcsetpgrp(terminal, job) == 0);
		/* The other side types the line when told so. */
		kill(job, SIGCONT);
		write(3, "l", 1);
		CHECK(waitpid(job, &status, WUNTRACED) == job);
		printf("%s ", ended(status));
		CHECK(tcsetpgrp(terminal, getpgrp()) == 0);
		printf("%u\n", ahead(3));
	}
	signal(SIGHUP, SIG_DFL);
	write(3, "h", 1);
	for (;;)
		ahead(3);
}
int main(void)
{
	int side = posix_openpt(O_RDWR | O_NOCTTY), channel[2], status;
	CHECK(side >= 0 && grantpt(side) == 0 && unlockpt(side) == 0);
	char name[64];
	CHECK(ptsname_r(side, name, sizeof name) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t leader = fork();
	if (leader == 0) {
		close(side);
		dup2(channel[1], 3);
		session(name);
	}
	close(channel[1]);
	for (char what; read(channel[0], &what, 1) == 1 && what != 'h';) {
		ahead(3);
		/* When the line has been read: Ctrl-C throws away what has not. */
		const char *typed = what == 'l' ? "typed\n" : "\003";
		CHECK(write(side, typed, strlen(typed)) == strlen(typed));
	}
	ahead(3);
	close(side);
	CHECK(waitpid(leader, &status, 0) == leader);
	printf("%s\n", ended(status));
}
