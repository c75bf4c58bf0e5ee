/* What both parts of the program share: the words of the file, and the openers. See two.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  PAGES = 24,
  PAGE_WORDS = 512,
  SECTOR_WORDS = 64,
  /* The file ends in the middle of its last page, and what goes past all caches stays before that. */
  DIRECT_WORDS = (PAGES - 1) * PAGE_WORDS,
  WORDS = DIRECT_WORDS + 193,
  /* Of one read. */
  MAX_WORDS = 4 * PAGE_WORDS,
};

struct shared {
  char kind[2];
  uint32_t run;
  _Atomic uint32_t meetings[2], stop, turns;
  _Atomic uint32_t begun[WORDS], acknowledged[WORDS];
};
extern struct shared *shared;

/* b: O_RDWR; w: O_WRONLY; n: O_RDWR while the file is empty; d: O_DIRECT; m: a shared mapping; v: read through a private
 * mapping; a: libaio with O_DIRECT; u: io_uring with O_DIRECT; q: io_uring without; c: copy_file_range; s: splice;
 * f: fallocate; t: ftruncate. */
struct opener {
  int side;
  char kind;
  int direct;
  const char *file, *scratch;
  int fd, reader;
  /* Of c: where it copies from and to. */
  int source, target;
  int pipe[2];
  uint64_t *map;
  struct ring *ring;
  unsigned long aio;
};

void fail(int code, const char *form, ...) __attribute__((noreturn, format(printf, 2, 3)));
uint32_t below(uint32_t most);

void opener_open(struct opener *opener);
void opener_close(struct opener *opener);
void opener_read(struct opener *opener, uint64_t *to, uint32_t first, uint32_t count);
void opener_write(struct opener *opener, const uint64_t *from, uint32_t first, uint32_t count);
/* Makes zeros of the words, by fallocate. */
void opener_zero(struct opener *opener, uint32_t first, uint32_t count);
/* Cuts the file somewhere behind the words, lengthens it, and looks at what is there then. */
void cut(struct opener *opener);
