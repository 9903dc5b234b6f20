/* Sphinx (off-line speech recognition; Fraser and Chang 2003, Table 1 and
 * section 3.1): reads about 15 MB from four files, mostly one byte after the
 * other, then searches with seemingly random accesses to a table of 176 MB,
 * here in memory that is swapped. Every fourth access goes where the last one
 * points to: the language model of the word just found. */
#include "common.h"
#include <fcntl.h>
#include <unistd.h>

enum { FILES = 4, FRAME = 256 };

/* Further arguments: the four files. */
int main(int argc, char **argv) {
    size_t bytes = begin(argc, argv), entries = bytes * 176 / 191 / sizeof(uint64_t);
    uint64_t *table = memory(entries * sizeof *table);
    for (size_t i = 0; i < entries; i++) table[i] = i * 0x9e3779b97f4a7c15u >> 7;
    start();
    uint64_t heard = 0;
    static unsigned char frame[FRAME];
    for (int file = 3; file < argc && file < 3 + FILES; file++) {
        int fd = open(argv[file], O_RDONLY);
        if (fd < 0) {
            perror(argv[file]);
            return 2;
        }
        for (ssize_t got; (got = read(fd, frame, sizeof frame)) > 0;)
            for (ssize_t i = 0; i < got; i++) heard = heard * 31 + frame[i];
        close(fd);
    }
    uint64_t score = 0, next = 0;
    for (int word = 0; word < 3000; word++) {
        size_t at = word % 4 == 3 ? next % entries : random_number() % entries;
        next = table[at];
        for (int i = 0; i < 20000; i++) score = score * 6364136223846793005u + next + (uint64_t)i;
    }
    return finish((double)((score ^ heard) >> 12));
}
