/* POSIX timers, timerfd, eventfd, signalfd and epoll: every expiry and event
 * is seen once, by the program. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
static volatile int fired;
static void count(int signal) { fired++; }
int main(void)
{
	signal(SIGUSR2, count);
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	for (int round = 0; round < 10; round++) {
		struct itimerspec once = { { 0 }, { 0, 1000000 } };
		ahead(3);
		timer_settime(timer, 0, &once, NULL);
		while (fired == round)
			ahead(3);
		printf("%d ", fired);
	}
	puts("");
	timer_delete(timer);
	int ticks = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), events = eventfd(5, EFD_SEMAPHORE | EFD_NONBLOCK);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, SFD_NONBLOCK), all = epoll_create1(0);
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? ticks : i == 1 ? events : signals;
		struct epoll_event want = { .events = EPOLLIN, .data.fd = i };
		epoll_ctl(all, EPOLL_CTL_ADD, fd, &want);
	}
	for (int round = 0; round < 12; round++) {
		uint64_t value = 0;
		struct signalfd_siginfo info = { 0 };
		struct epoll_event ready[4];
		struct itimerspec once = { { 0 }, { 0, 500000 } };
		ahead(2);
		timerfd_settime(ticks, 0, &once, NULL);
		ahead(2);
		CHECK(read(ticks, &value, 8) == 8 && value == 1);
		ahead(1);
		errno = 0, value = 0;
		ssize_t got = read(events, &value, 8);
		printf("%zd %d %d ", got, (int)value, errno);
		kill(getpid(), SIGUSR1);
		ahead(2);
		printf("%d ", epoll_wait(all, ready, 4, 1000));
		got = read(signals, &info, sizeof info);
		printf("%zd %d ", got, (int)info.ssi_signo);
		errno = 0;
		got = read(signals, &info, sizeof info);
		printf("%zd %d %u\n", got, errno == EAGAIN, ahead(2));
	}
}
