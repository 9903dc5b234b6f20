/* Exceptions thrown and caught while files are read, by the program and so by
 * its copies, too: destructors run once, in every thread. */
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
extern "C" {
#include "common.h"
}
static thread_local int destroyed;
struct Guard {
	~Guard() { destroyed++; }
};
static int deep(int level, int fd)
{
	Guard guard;
	char byte = 0;
	if (pread(fd, &byte, 1, level * 9973 % BIG_LEN) != 1)
		throw std::runtime_error("no byte");
	if (level % 17 == 16)
		throw std::runtime_error(std::string("level ") + std::to_string(level));
	return byte + deep(level + 1, fd);
}
static std::string run(int from)
{
	std::string out;
	int fd = open(BIG, O_RDONLY | O_CLOEXEC);
	for (int round = 0; round < 20; round++) {
		try {
			deep(from + round, fd);
		} catch (const std::exception &error) {
			out += error.what();
			out += ' ';
		}
		try {
			try {
				deep(100000 + round, -1);
			} catch (...) {
				throw;
			}
		} catch (const std::runtime_error &error) {
			out += error.what();
		}
	}
	close(fd);
	return out + " " + std::to_string(destroyed);
}
int main()
{
	printf("%s\n", run(0).c_str());
	std::vector<std::string> results(3);
	std::vector<std::thread> threads;
	for (int i = 0; i < 3; i++)
		threads.emplace_back([&results, i] { results[i] = run(i * 1000); });
	for (auto &thread : threads)
		thread.join();
	for (auto &result : results)
		printf("%s\n", result.c_str());
	printf("%s %u\n", run(7).c_str(), ahead(5));
}
