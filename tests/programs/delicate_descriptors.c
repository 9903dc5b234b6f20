/* inotify, eventfd, timerfd, signalfd, epoll, userfaultfd, leases: each tells
 * the program of its own doings only. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
int main(void)
{
	int event = eventfd(0, EFD_NONBLOCK), timer = timerfd_create(CLOCK_MONOTONIC, 0), poll = epoll_create1(0);
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR1), sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, 0);
	for (int round = 0; round < 20; round++) {
		uint64_t count = 1;
		ahead(2);
		CHECK(write(event, &count, 8) == 8);
		ahead(2);
		CHECK(write(event, &count, 8) == 8 && read(event, &count, 8) == 8);
		struct itimerspec soon = { { 0, 0 }, { 0, 1000000 } };
		CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
		ahead(2);
		uint64_t ticks = 0;
		CHECK(read(timer, &ticks, 8) == 8);
		kill(getpid(), SIGUSR1);
		ahead(2);
		struct signalfd_siginfo info;
		CHECK(read(signals, &info, sizeof info) == sizeof info);
		struct epoll_event interest = { EPOLLIN, { .u32 = round } }, found = { 0 };
		CHECK(epoll_ctl(poll, round ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, event, &interest) == 0);
		int idle = epoll_wait(poll, &found, 1, 0);
		CHECK(write(event, &count, 8) == 8);
		ahead(2);
		int ready = epoll_wait(poll, &found, 1, 100);
		printf("%d %d %d %d %d %u\n", (int)count, (int)ticks, info.ssi_signo, idle, ready, found.data.u32);
		CHECK(read(event, &count, 8) == 8);
	}
	ahead(2);
	int watch = inotify_init1(IN_NONBLOCK);
	CHECK(inotify_add_watch(watch, "data", IN_OPEN | IN_ACCESS | IN_CLOSE) > 0);
	sum_file(file_name(3));
	ahead(5);
	char buffer[4096] __attribute__((aligned(8)));
	ssize_t got;
	int events = 0;
	pause_ms(20);
	while ((got = read(watch, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
			events += (((struct inotify_event *)at)->mask & IN_OPEN) != 0;
	printf("opened %d times\n", events);
	int leased = open("lease", O_RDONLY | O_CREAT, 0644);
	CHECK(fcntl(leased, F_SETLEASE, F_RDLCK) == 0);
	ahead(5);
	printf("%d\n", fcntl(leased, F_GETLEASE));
}
