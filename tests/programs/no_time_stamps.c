/* A program that forbids itself the time-stamp counter, while it reads. */
#include "common.h"
int main(void)
{
	unsigned sum = ahead(2);
	CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
	for (int round = 0; round < 20; round++)
		sum += ahead(3);
	CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
	printf("%u %u\n", sum, ahead(3));
	return 0;
}
