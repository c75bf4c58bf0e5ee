/* The kinds of openers: how each opens the file, reads it and writes it. See two.c. */
#define _GNU_SOURCE
#include "two.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* A ring of io_uring with one request at a time. */
struct ring {
  int fd;
  char *queues;
  size_t len;
  struct io_uring_sqe *entries;
  struct io_uring_params params;
};

static struct ring *make_ring(void) {
  struct ring *ring = calloc(1, sizeof *ring);
  ring->fd = syscall(SYS_io_uring_setup, 4, &ring->params);
  if (ring->fd < 0) fail(77, "io_uring");
  struct io_uring_params *p = &ring->params;
  size_t submissions = p->sq_off.array + p->sq_entries * sizeof(unsigned);
  size_t completions = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
  ring->len = submissions > completions ? submissions : completions;
  int prot = PROT_READ | PROT_WRITE;
  ring->queues = mmap(0, ring->len, prot, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
  ring->entries = mmap(0, p->sq_entries * sizeof *ring->entries, prot, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
  if (ring->queues == MAP_FAILED || ring->entries == MAP_FAILED) fail(2, "mapping a ring");
  return ring;
}

static void end_ring(struct ring *ring) {
  munmap(ring->queues, ring->len);
  munmap(ring->entries, ring->params.sq_entries * sizeof *ring->entries);
  close(ring->fd);
  free(ring);
}

static ssize_t by_ring(struct ring *ring, int op, int fd, void *at, size_t len, off_t offset) {
  struct io_uring_params *p = &ring->params;
  _Atomic unsigned *tail = (_Atomic unsigned *)(ring->queues + p->sq_off.tail);
  _Atomic unsigned *head = (_Atomic unsigned *)(ring->queues + p->cq_off.head);
  _Atomic unsigned *done = (_Atomic unsigned *)(ring->queues + p->cq_off.tail);
  unsigned index = atomic_load(tail) & (p->sq_entries - 1);
  struct io_uring_sqe *entry = &ring->entries[index];
  memset(entry, 0, sizeof *entry);
  entry->opcode = op, entry->fd = fd, entry->addr = (uint64_t)(uintptr_t)at, entry->len = len, entry->off = offset;
  ((unsigned *)(ring->queues + p->sq_off.array))[index] = index;
  atomic_fetch_add(tail, 1);
  unsigned submit = 1;
  while (atomic_load(head) == atomic_load(done)) {
    int entered = syscall(SYS_io_uring_enter, ring->fd, submit, 1, IORING_ENTER_GETEVENTS, 0, 0);
    if (entered < 0 && errno != EINTR) fail(2, "io_uring_enter");
    if (entered > 0) submit = 0;
  }
  struct io_uring_cqe *answers = (struct io_uring_cqe *)(ring->queues + p->cq_off.cqes);
  int result = answers[atomic_load(head) & (p->cq_entries - 1)].res;
  atomic_fetch_add(head, 1);
  if (result < 0) errno = -result;
  return result < 0 ? -1 : result;
}

static ssize_t by_aio(struct opener *opener, int op, void *at, size_t len, off_t offset) {
  struct iocb block = {.aio_lio_opcode = op, .aio_fildes = opener->fd, .aio_buf = (uint64_t)(uintptr_t)at,
                       .aio_nbytes = len, .aio_offset = offset}, *blocks = &block;
  struct io_event event;
  if (syscall(SYS_io_submit, opener->aio, 1, &blocks) != 1) return -1;
  while (syscall(SYS_io_getevents, opener->aio, 1, 1, &event, 0) != 1)
    if (errno != EINTR) fail(2, "io_getevents");
  if (event.res < 0) errno = -event.res;
  return event.res < 0 ? -1 : event.res;
}

static int open_scratch(struct opener *opener, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%d", opener->scratch, name, opener->side);
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  if (fd < 0) fail(2, "a scratch file");
  return fd;
}

void opener_open(struct opener *opener) {
  int flags = opener->direct ? O_RDWR | O_DIRECT : strchr("wqcs", opener->kind) ? O_WRONLY : O_RDWR;
  /* Copies go to descriptors of both kinds. */
  if (opener->kind == 'c' && below(4) == 0) flags = O_RDWR;
  opener->fd = open(opener->file, flags);
  opener->reader = flags == O_WRONLY ? open(opener->file, O_RDONLY) : opener->fd;
  if (opener->fd < 0 || opener->reader < 0) fail(opener->direct ? 77 : 2, "opening as %c", opener->kind);
  if (strchr("mv", opener->kind)) {
    int shared_or_not = opener->kind == 'm' ? MAP_SHARED : MAP_PRIVATE;
    int prot = opener->kind == 'm' ? PROT_READ | PROT_WRITE : PROT_READ;
    opener->map = mmap(0, WORDS * 8, prot, shared_or_not, opener->fd, 0);
    if (opener->map == MAP_FAILED) fail(2, "mmap");
  }
  if (opener->kind == 'c') {
    opener->source = open_scratch(opener, "source");
    opener->target = open_scratch(opener, "target");
  }
  if (opener->kind == 's' && pipe(opener->pipe) != 0) fail(2, "pipe");
}

void opener_close(struct opener *opener) {
  if (opener->map && munmap(opener->map, WORDS * 8) != 0) fail(2, "munmap");
  if (opener->kind == 'c') close(opener->source), close(opener->target);
  if (opener->kind == 's') close(opener->pipe[0]), close(opener->pipe[1]);
  if (opener->reader != opener->fd) close(opener->reader);
  if (close(opener->fd) != 0) fail(2, "close");
  if (opener->ring) end_ring(opener->ring);
  if (opener->aio) syscall(SYS_io_destroy, opener->aio);
  opener->map = 0, opener->ring = 0, opener->aio = 0;
}

/* These are made by the process that uses them. */
static void need_queue(struct opener *opener) {
  if (strchr("uq", opener->kind) && !opener->ring) opener->ring = make_ring();
  if (opener->kind == 'a' && !opener->aio && syscall(SYS_io_setup, 1, &opener->aio) != 0) fail(77, "io_setup");
}

/* Copies all of it, in as many calls as that takes. */
static void copy(int from, off_t at, int to, off_t to_at, size_t len) {
  while (len > 0) {
    ssize_t here = copy_file_range(from, &at, to, &to_at, len, 0);
    if (here <= 0) fail(2, "copy_file_range: %zd", here);
    len -= here;
  }
}

/* Splices all of it; a pipe's end has no place. */
static void move(int from, off_t *at, int to, off_t *to_at, size_t len) {
  while (len > 0) {
    ssize_t here = splice(from, at, to, to_at, len, 0);
    if (here <= 0) fail(2, "splice: %zd", here);
    len -= here;
  }
}

void opener_read(struct opener *opener, uint64_t *to, uint32_t first, uint32_t count) {
  size_t len = count * 8;
  off_t at = first * 8;
  ssize_t got = len;
  need_queue(opener);
  switch (opener->kind) {
  case 'm':
  case 'v': memcpy(to, opener->map + first, len); break;
  case 'a': got = by_aio(opener, IOCB_CMD_PREAD, to, len, at); break;
  case 'u':
  case 'q': got = by_ring(opener->ring, IORING_OP_READ, opener->reader, to, len, at); break;
  case 'c':
    copy(opener->reader, at, opener->target, 0, len);
    got = pread(opener->target, to, len, 0);
    break;
  case 's':
    for (size_t part; len > 0; len -= part, to += part / 8) {
      part = len < 4096 ? len : 4096;
      move(opener->reader, &at, opener->pipe[1], 0, part);
      if (read(opener->pipe[0], to, part) != (ssize_t)part) fail(2, "reading a pipe");
    }
    break;
  default: got = pread(opener->reader, to, len, at);
  }
  if (got != (ssize_t)(count * 8)) fail(got < 0 ? 2 : 1, "%c: %zd of %u bytes read at %u", opener->kind, got, count * 8, first * 8);
}

void opener_write(struct opener *opener, const uint64_t *from, uint32_t first, uint32_t count) {
  size_t len = count * 8;
  off_t at = first * 8;
  ssize_t put = len;
  void *memory = (void *)(uintptr_t)from;
  need_queue(opener);
  switch (opener->kind) {
  case 'm':
    memcpy(opener->map + first, from, len);
    if (below(64) == 0 && msync(opener->map, WORDS * 8, MS_SYNC) != 0) fail(2, "msync");
    break;
  case 'a': put = by_aio(opener, IOCB_CMD_PWRITE, memory, len, at); break;
  case 'u':
  case 'q': put = by_ring(opener->ring, IORING_OP_WRITE, opener->fd, memory, len, at); break;
  case 'c':
    if (pwrite(opener->source, from, len, 0) != (ssize_t)len) fail(2, "writing the source of a copy");
    copy(opener->source, 0, opener->fd, at, len);
    break;
  case 's':
    for (size_t part; len > 0; len -= part, from += part / 8) {
      part = len < 4096 ? len : 4096;
      if (write(opener->pipe[1], from, part) != (ssize_t)part) fail(2, "writing a pipe");
      move(opener->pipe[0], 0, opener->fd, &at, part);
    }
    break;
  default: put = pwrite(opener->fd, from, len, at);
  }
  if (put != (ssize_t)(count * 8)) fail(2, "%c: %zd of %u bytes written at %u", opener->kind, put, count * 8, first * 8);
}

void opener_zero(struct opener *opener, uint32_t first, uint32_t count) {
  int mode = FALLOC_FL_KEEP_SIZE | (below(2) ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
  if (fallocate(opener->fd, mode, first * 8, count * 8) != 0) fail(2, "fallocate");
}

void cut(struct opener *opener) {
  enum { MOST = 3 * 4096 };
  static char tail[MOST];
  uint32_t shorter = below(MOST / 2), written = below(MOST / 2) + 1, longer = shorter + written + below(2000);
  off_t end = WORDS * 8;
  if (ftruncate(opener->fd, end + shorter) != 0) fail(2, "ftruncate");
  memset(tail, 0x5a, written);
  if (below(2) && pwrite(opener->fd, tail, written, end + shorter) != written) fail(2, "writing the tail");
  uint32_t kept = below(64);
  if (ftruncate(opener->fd, end + shorter + (below(2) ? kept : 0)) != 0) fail(2, "ftruncate");
  if (ftruncate(opener->fd, end + (shorter < 100 ? 0 : shorter - 100)) != 0) fail(2, "ftruncate");
  if (ftruncate(opener->fd, end + longer) != 0) fail(2, "ftruncate");
  ssize_t got = pread(opener->fd, tail, sizeof tail, end + shorter);
  if (got != longer - shorter) fail(1, "t: %zd of %u bytes behind the cut", got, longer - shorter);
  for (ssize_t i = 0; i < got; i++)
    if (tail[i]) fail(1, "t: byte %zd of %zd behind the cut is %x", i, got, tail[i]);
  /* The file never ends before its words. */
}
