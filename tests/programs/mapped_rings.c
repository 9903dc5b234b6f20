/* What the kernel counts as mapped is given up by the program's unmapping it: a
 * packet socket's ring (packet(7)) can be taken down then. No copy has it mapped. */
#include "common.h"
#include <linux/if_packet.h>
int main(void)
{
	unsigned char known = at_100();
	for (int round = 0; round < 40; round++) {
		struct tpacket_req ring = { 4096, 1, 2048, 2 }, none = { 0 };
		int fd = socket(AF_PACKET, SOCK_RAW, 0);
		if (fd < 0) {
			printf("errno %d\n", errno);
			break;
		}
		CHECK(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring) == 0);
		void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(map != MAP_FAILED);
		ahead(1);
		linger_if(at_100() != known);
		CHECK(munmap(map, 4096) == 0);
		CHECK(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &none, sizeof none) == 0);
		close(fd);
	}
}
