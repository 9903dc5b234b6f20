/* Random touches of memory that is swapped out: one page in 48 of it, once. */
#include "common.h"

int main(int argc, char **argv) {
    size_t pages = begin(argc, argv) / 4096;
    unsigned char *data = memory(pages * 4096);
    for (size_t i = 0; i < pages; i++) data[i * 4096] = (unsigned char)(i * 7);
    start();
    uint64_t sum = 0;
    for (size_t touch = 0; touch < pages / 48; touch++) {
        sum = sum * 31 + data[random_number() % pages * 4096];
        for (int i = 0; i < 2000; i++) sum = sum * 6364136223846793005u + 1;
    }
    return finish((double)(sum >> 12));
}
