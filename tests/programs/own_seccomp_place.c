/* Filters that forbid what is called from anywhere but the C library, as against injected
 * code. */
#include "common.h"
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
static unsigned long low, high;
static int find(struct dl_phdr_info *info, size_t size, void *unused)
{
	for (int i = 0; strstr(info->dlpi_name, "libc.so") && i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
			low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, high = low + info->dlpi_phdr[i].p_memsz;
	return 0;
}
static int filter(int how, unsigned action)
{
	unsigned at = offsetof(struct seccomp_data, instruction_pointer);
	/* pread64 from elsewhere is forbidden. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low >> 32, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)low, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (unsigned)high, 1, 0),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET, action),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return how ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
		   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
int main(void)
{
	dl_iterate_phdr(find, NULL);
	for (int how = 0; how < 4; how++) {
		printf("%u ", ahead(5));
		pid_t child = fork();
		if (child == 0) {
			int fd = open(BIG, O_RDONLY);
			char byte = 0;
			unsigned sum = ahead(5);
			CHECK(filter(how & 1, how & 2 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM) == 0);
			for (int i = 0; i < 20; i++) {
				CHECK(pread(fd, &byte, 1, i * 5000) == 1);
				sum = sum * 31 + byte;
			}
			sum += work();
			pid_t inner = fork();
			if (inner == 0)
				_exit(pread(fd, &byte, 1, 0) == 1 ? 5 : 1);
			int status;
			CHECK(waitpid(inner, &status, 0) == inner);
			printf("%u %s ", sum, ended(status));
			exit(4);
		}
		int status;
		waitpid(child, &status, 0);
		printf("%s\n", ended(status));
	}
	/* One that is refused changes nothing. */
	printf("%ld", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 16));
	printf(" %u\n", work() + ahead(3));
}
