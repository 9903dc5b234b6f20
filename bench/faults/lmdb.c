/* Random gets from an LMDB database, one read transaction each, as a server
 * would: an error is counted and the next request served.
 *
 * usage: lmdb fill DIRECTORY KEYS VALUE_LEN | lmdb get DIRECTORY KEYS GETS SEED
 *
 * The library is loaded when it runs, so that building takes no headers.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { size_t size; void *data; } value; /* MDB_val */
enum { RDONLY = 0x20000, NOSYNC = 0x10000, APPEND = 0x20000 };
static int (*env_create)(void **), (*env_set_mapsize)(void *, size_t);
static int (*env_open)(void *, const char *, unsigned, unsigned);
static int (*txn_begin)(void *, void *, unsigned, void **), (*txn_commit)(void *);
static void (*txn_abort)(void *), (*env_close)(void *);
static int (*dbi_open)(void *, const char *, unsigned, unsigned *);
static int (*put)(void *, unsigned, value *, value *, unsigned), (*get)(void *, unsigned, value *, value *);

static void load(void)
{
	void *library = dlopen("liblmdb.so.0", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define FIND(name) *(void **)&name = dlsym(library, "mdb_" #name)
	FIND(env_create), FIND(env_set_mapsize), FIND(env_open), FIND(txn_begin), FIND(txn_commit);
	FIND(txn_abort), FIND(env_close), FIND(dbi_open), FIND(put), FIND(get);
}

static void must(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "%s: error %d\n", what, code);
		exit(1);
	}
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u; /* SplitMix64 */
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

int main(int argc, char **argv)
{
	void *env, *txn;
	unsigned dbi;
	if (argc < 5)
		return 2;
	load();
	int fill = !strcmp(argv[1], "fill");
	uint64_t keys = strtoull(argv[3], NULL, 10);
	must(env_create(&env), "create");
	must(env_set_mapsize(env, 4ull << 30), "mapsize");
	must(env_open(env, argv[2], fill ? NOSYNC : RDONLY, 0644), "open");
	must(txn_begin(env, NULL, fill ? 0 : RDONLY, &txn), "begin");
	must(dbi_open(txn, NULL, 0, &dbi), "database");
	if (fill) {
		size_t len = strtoull(argv[4], NULL, 10);
		char *bytes = malloc(len);
		for (uint64_t i = 0; i < keys; i++) {
			uint64_t big = __builtin_bswap64(i);
			for (size_t j = 0; j < len; j += 8) {
				uint64_t word = mix(i * 1000 + j);
				memcpy(bytes + j, &word, len - j < 8 ? len - j : 8);
			}
			value key = { 8, &big }, data = { len, bytes };
			must(put(txn, dbi, &key, &data, APPEND), "put");
		}
		must(txn_commit(txn), "commit");
		env_close(env);
		return 0;
	}
	must(txn_commit(txn), "commit");
	uint64_t gets = strtoull(argv[4], NULL, 10), seed = strtoull(argv[5], NULL, 10), sum = 0;
	unsigned long errors = 0;
	for (uint64_t i = 0; i < gets; i++) {
		uint64_t big = __builtin_bswap64(mix(seed + i * 0x9E3779B97F4A7C15u) % keys);
		value key = { 8, &big }, data;
		if (txn_begin(env, NULL, RDONLY, &txn)) {
			errors++;
			continue;
		}
		if (get(txn, dbi, &key, &data) == 0)
			sum = sum * 31 + *(unsigned char *)data.data + data.size;
		else
			errors++;
		txn_abort(txn);
	}
	printf("%016llx, %lu errors\n", (unsigned long long)sum, errors);
}
