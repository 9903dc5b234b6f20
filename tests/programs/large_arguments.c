/* A hundred thousand arguments. */
#include "common.h"
int main(int argc, char **argv)
{
	if (argc > 2) {
		unsigned sum = 0;
		for (int i = 0; i < argc; i++)
			for (char *c = argv[i]; *c && i; c++)
				sum = sum * 31 + *c;
		printf("%d %u %u\n", argc, sum, ahead(5));
		return 0;
	}
	static char *args[100002];
	args[0] = argv[0];
	for (int i = 1; i < 100001; i++)
		args[i] = i % 3 ? "ab" : "";
	ahead(5);
	execv("/proc/self/exe", args);
	printf("%d\n", errno);
}
