/* Two threads in step, page by page: one writes 8 bytes of a page through one descriptor, the other 8 bytes of the same page
 * at the same moment through a second one. Whatever both have done must be there: at once, after a reopen, on the disk.
 *
 *   step FILE PAGES FIRST SECOND
 *
 * FIRST is the descriptor of pwrite: n, which made the file and is to read and write, or w, to write only. SECOND is how the
 * other one works on the file: m, stores to a shared mapping of FIRST's own descriptor where that can be mapped, or of another
 * one; p, pwrite through another one; r, reads through another one.
 *
 * Ends with 0: all there; 1: bytes are lost, told on standard error; 2: something could not be done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, FIRST_AT = 1024, SECOND_AT = 3072 };

static _Atomic long arrived[2];
static int first, second;
static char *map, mode;
static long pages;

static void need(int done, const char *what) {
  if (done) return;
  perror(what);
  exit(2);
}

static void meet(int side, long page) {
  atomic_store(&arrived[side], page + 1);
  while (atomic_load(&arrived[!side]) <= page) __builtin_ia32_pause();
}

static void *write_first(void *unused) {
  for (long page = 0; page < pages; page++) {
    uint64_t value = page + 1;
    meet(0, page);
    need(pwrite(first, &value, 8, page * PAGE + FIRST_AT) == 8, "pwrite");
  }
  return unused;
}

static void *work_second(void *unused) {
  for (long page = 0; page < pages; page++) {
    uint64_t value = page + 1;
    meet(1, page);
    if (mode == 'm') *(volatile uint64_t *)(map + page * PAGE + SECOND_AT) = value;
    else if (mode == 'p') need(pwrite(second, &value, 8, page * PAGE + SECOND_AT) == 8, "pwrite");
    else need(pread(second, &value, 8, page * PAGE + SECOND_AT) == 8, "pread");
  }
  return unused;
}

static int count(int fd, const char *view) {
  long lost[2] = {0};
  static char page_bytes[PAGE] __attribute__((aligned(PAGE)));
  for (long page = 0; page < pages; page++) {
    uint64_t want = page + 1;
    need(pread(fd, page_bytes, PAGE, page * PAGE) == PAGE, "reading");
    lost[0] += memcmp(page_bytes + FIRST_AT, &want, 8) != 0;
    lost[1] += mode != 'r' && memcmp(page_bytes + SECOND_AT, &want, 8) != 0;
  }
  if (lost[0] + lost[1]) fprintf(stderr, "%s: of %ld, %ld of the first and %ld of the second lost\n", view, pages, lost[0], lost[1]);
  return lost[0] + lost[1] != 0;
}

static int open_it(const char *file, int flags) {
  int fd = open(file, flags, 0644);
  need(fd >= 0, "open");
  return fd;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *file = argv[1];
  pages = atol(argv[2]), mode = *argv[4];
  int made = open_it(file, O_RDWR | O_CREAT | O_EXCL);
  need(ftruncate(made, pages * PAGE) == 0, "ftruncate");
  second = mode == 'm' && *argv[3] == 'n' ? made : open_it(file, O_RDWR);
  first = *argv[3] == 'n' ? made : open_it(file, O_WRONLY);
  if (mode == 'm') map = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, second, 0);
  need(map != MAP_FAILED, "mmap");
  pthread_t threads[2];
  need(pthread_create(&threads[0], 0, write_first, 0) == 0, "a thread");
  need(pthread_create(&threads[1], 0, work_second, 0) == 0, "a thread");
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  int bad = count(second, "at once");
  if (map) munmap(map, pages * PAGE);
  bad |= count(open_it(file, O_RDONLY), "opened anew");
  bad |= count(open_it(file, O_RDONLY | O_DIRECT), "on the disk");
  return bad;
}
