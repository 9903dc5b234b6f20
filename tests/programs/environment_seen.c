// not: refused (tier T0 leaves LD_PRELOAD in sight)
/* The environment is seen as it was given, in order, by getenv, environ,
 * main's third argument, env and children. */
#include "common.h"
extern char **environ;
int main(int argc, char **argv, char **envp)
{
	printf("%d\n", envp == environ);
	for (char **e = envp; *e; e++)
		if (strncmp(*e, "XDG", 3) && strncmp(*e, "_=", 2))
			puts(*e);
	printf("%s\n", getenv("LD_PRELOAD") ? "preload" : "-");
	system("env | grep -v -e ^_= -e ^PWD= -e ^XDG | sort; env | wc -l");
	FILE *pipe = popen("echo $LD_PRELOAD$RUNAHEAD_SESSION; cat data/f00 | wc -c", "r");
	char line[100];
	while (fgets(line, sizeof line, pipe))
		fputs(line, stdout);
	printf("%d\n", pclose(pipe));
}
