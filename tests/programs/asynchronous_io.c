/* Native AIO and io_uring, by plain system calls: requests are made once, by
 * the program, and their results are as they would be. */
#include "common.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
static void native(void)
{
	aio_context_t context = 0;
	static char buffers[4][4096];
	int fd = open(BIG, O_RDONLY), out = open("aio", O_RDWR | O_CREAT, 0644);
	CHECK(syscall(SYS_io_setup, 8, &context) == 0);
	for (int round = 0; round < 10; round++) {
		struct iocb requests[4], *list[4];
		struct io_event events[4];
		memset(requests, 0, sizeof requests);
		for (int i = 0; i < 4; i++) {
			requests[i] = (struct iocb){ .aio_lio_opcode = i == 3 ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
				.aio_fildes = i == 3 ? out : fd, .aio_buf = (uint64_t)buffers[i], .aio_nbytes = 4096,
				.aio_offset = i == 3 ? round * 4096 : (round * 4 + i) * 4096, .aio_data = i };
			list[i] = &requests[i];
		}
		ahead(2);
		printf("%ld ", syscall(SYS_io_submit, context, 4, list));
		ahead(2);
		printf("%ld ", syscall(SYS_io_getevents, context, 4, 4, events, NULL));
		printf("%d %d %u\n", buffers[0][100], buffers[2][4000], ahead(2));
	}
	CHECK(syscall(SYS_io_destroy, context) == 0);
	close(fd), close(out);
}
static void ring(void)
{
	struct io_uring_params params = { 0 };
	int fd = syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0) {
		puts("no io_uring here");
		return;
	}
	size_t size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	char *rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries = mmap(NULL, params.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	unsigned *tail = (unsigned *)(rings + params.sq_off.tail), *array = (unsigned *)(rings + params.sq_off.array);
	unsigned *head = (unsigned *)(rings + params.cq_off.head), *mask = (unsigned *)(rings + params.cq_off.ring_mask);
	struct io_uring_cqe *results = (void *)(rings + params.cq_off.cqes);
	int data = open(BIG, O_RDONLY), out = open("ring", O_RDWR | O_CREAT | O_APPEND, 0644);
	char buffer[512];
	for (int round = 0; round < 20; round++) {
		ahead(2);
		unsigned at = *tail & (params.sq_entries - 1);
		entries[at] = (struct io_uring_sqe){ .opcode = round % 2 ? IORING_OP_WRITE : IORING_OP_READ, .fd = round % 2 ? out : data,
			.addr = (uint64_t)buffer, .len = 512, .off = round % 2 ? -1 : round * 5000, .user_data = round };
		array[at] = at;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		ahead(1);
		printf("%ld ", syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
		struct io_uring_cqe *result = &results[*head & *mask];
		printf("%d %d %d\n", result->res, (int)result->user_data, buffer[7]);
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
	close(fd);
}
int main(void)
{
	native();
	ring();
	printf("%u\n", work());
}
