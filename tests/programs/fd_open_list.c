/* /proc/self/fd shows the program's own descriptors only. */
#include "common.h"
#include <dirent.h>
int main(void)
{
	for (int round = 0; round < 30; round++) {
		ahead(3);
		DIR *dir = opendir("/proc/self/fd");
		int count = 0, highest = -1;
		for (struct dirent *entry; (entry = readdir(dir));)
			if (entry->d_name[0] != '.') {
				int fd = atoi(entry->d_name);
				count++;
				highest = fd > highest ? fd : highest;
			}
		closedir(dir);
		printf("%d %d\n", count, highest);
	}
}
