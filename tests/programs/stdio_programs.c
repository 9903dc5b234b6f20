/* stdio: getc, fgets, fread, fseek, ungetc, scanf, getline, tmpfile, over
 * files that are read and written. */
#include "common.h"
int main(void)
{
	unsigned sum = 0;
	for (int round = 0; round < FILES; round++) {
		FILE *file = fopen(file_name(round), "r");
		int c;
		while ((c = getc(file)) != EOF)
			sum = sum * 31 + c;
		rewind(file);
		char line[128], *text = NULL;
		size_t room = 0;
		fread(line, 1, 100, file);
		fseek(file, -50, SEEK_END);
		sum += getc(file), ungetc('x', file), sum += getc(file);
		fseek(file, 1000, SEEK_SET);
		ssize_t got = getline(&text, &room, file);
		printf("%u %zd %ld\n", sum, got, ftell(file));
		free(text);
		fclose(file);
		FILE *scratch = tmpfile();
		fprintf(scratch, "%u %d\n", sum, round);
		rewind(scratch);
		unsigned back;
		CHECK(fscanf(scratch, "%u", &back) == 1 && back == sum);
		fclose(scratch);
		FILE *append = fopen("out", "a+");
		fprintf(append, "%u\n", sum);
		rewind(append);
		int lines = 0;
		while (fgets(line, sizeof line, append))
			lines++;
		printf("%d\n", lines);
		fclose(append);
	}
	FILE *again = freopen(BIG, "r", stdin);
	printf("%d %d\n", getchar(), fileno(again));
}
