/* A debugger attaches while the program runs ahead: reads its memory, sets a
 * breakpoint as gdb does, steps, catches its calls, changes a variable, and
 * lets go. Only the program sees the changes; it goes on as before. */
#include "common.h"
#include <sys/ptrace.h>
#include <sys/user.h>
static volatile long told = 5;
__attribute__((noinline)) static void place(void) { __asm__ volatile("nop"); }
static void debugged(int ready)
{
	write(ready, "r", 1);
	/* Until the debugger says so; each round passes the place. */
	unsigned sum = 0;
	long rounds = 0;
	while (told != 77) {
		sum ^= ahead(2);
		place();
		rounds++;
	}
	printf("told after some rounds: %d\n", rounds > 0);
	printf("%u %u\n", ahead(20), work());
	_exit(9);
}
static int status;
static int stopped_by(pid_t child, int signal)
{
	return waitpid(child, &status, __WALL) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}
int main(void)
{
	for (int round = 0; round < 8; round++) {
		int ready[2];
		char byte;
		CHECK(pipe(ready) == 0);
		pid_t child = fork();
		if (child == 0)
			debugged(ready[1]);
		CHECK(read(ready[0], &byte, 1) == 1);
		pause_ms(round * 3);
		if (round % 2) {
			CHECK(ptrace(PTRACE_ATTACH, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGSTOP));
		} else {
			CHECK(ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK) == 0);
			CHECK(ptrace(PTRACE_INTERRUPT, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGTRAP));
		}
		printf("%ld ", ptrace(PTRACE_PEEKDATA, child, &told, 0));
		/* A breakpoint. A hook that is left by the way is the program's own
		 * business: its calls are not counted here. */
		long code = ptrace(PTRACE_PEEKTEXT, child, place, 0);
		CHECK(ptrace(PTRACE_POKETEXT, child, place, (code & ~0xffL) | 0xcc) == 0);
		for (int hit = 0; hit < 3; hit++) {
			struct user_regs_struct registers;
			CHECK(ptrace(PTRACE_CONT, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGTRAP));
			CHECK(ptrace(PTRACE_GETREGS, child, 0, &registers) == 0);
			CHECK(registers.rip == (unsigned long)place + 1);
			registers.rip--;
			CHECK(ptrace(PTRACE_SETREGS, child, 0, &registers) == 0);
			CHECK(ptrace(PTRACE_POKETEXT, child, place, code) == 0);
			CHECK(ptrace(PTRACE_SINGLESTEP, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGTRAP));
			CHECK(ptrace(PTRACE_GETREGS, child, 0, &registers) == 0);
			CHECK(registers.rip > (unsigned long)place && registers.rip < (unsigned long)place + 8);
			CHECK(ptrace(PTRACE_POKETEXT, child, place, (code & ~0xffL) | 0xcc) == 0);
		}
		CHECK(ptrace(PTRACE_POKETEXT, child, place, code) == 0);
		/* Through hooks, instruction by instruction. */
		for (int step = 0; step < 2000; step++) {
			CHECK(ptrace(PTRACE_SINGLESTEP, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGTRAP));
		}
		for (int call = 0; call < 20; call++) {
			CHECK(ptrace(PTRACE_SYSCALL, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGTRAP));
		}
		if (round % 4 < 2)
			CHECK(ptrace(PTRACE_POKEDATA, child, &told, 77) == 0);
		CHECK(ptrace(PTRACE_DETACH, child, 0, 0) == 0);
		if (round % 4 >= 2) {
			/* Again, after it has run by itself for a while. */
			pause_ms(5);
			CHECK(ptrace(PTRACE_ATTACH, child, 0, 0) == 0);
			CHECK(stopped_by(child, SIGSTOP));
			CHECK(ptrace(PTRACE_POKEDATA, child, &told, 77) == 0);
			CHECK(ptrace(PTRACE_DETACH, child, 0, 0) == 0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		printf("%s\n", ended(status));
		close(ready[0]), close(ready[1]);
	}
}
