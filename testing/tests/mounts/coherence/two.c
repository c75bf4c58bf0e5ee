/* Two processes on one file, each through an opener of its own kind; every byte that either reads is judged.
 *
 *   two FILE SCRATCH MILLISECONDS SEED KIND KIND
 *
 * The file is words of 8 bytes. Each has one owner, the only process that writes it, and says which version it is. Before a
 * write the owner notes that version as begun, when the write has returned as acknowledged. Who reads a word notes what was
 * acknowledged before the read and what was begun after it: the word's version must lie between. In the end both have
 * stopped, and each word must be its last version in every view of the file.
 *
 * Ends with 0: all right; 1: wrong bytes, told on standard error; 2: something could not be done; 77: nor can it be here. */
#define _GNU_SOURCE
#include "two.h"
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <time.h>

struct shared *shared;
static uint64_t seed;

void fail(int code, const char *form, ...) {
  va_list args;
  va_start(args, form);
  vfprintf(stderr, form, args);
  va_end(args);
  fprintf(stderr, ": %s\n", strerror(errno));
  _exit(code);
}

uint32_t below(uint32_t most) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (uint32_t)(seed >> 20) % most;
}

/* What a word holds in a version. Odd ones are zeros: holes. */
static uint64_t content(uint32_t word, uint32_t version) {
  return version & 1 ? 0 : (uint64_t)version << 32 | (word * 2654435761u | 1);
}

/* Which side may write a word: runs of `run` words in turn. Who cuts the file owns what is behind `WORDS` only. */
static int owner(uint32_t word) {
  for (int side = 0; side < 2; side++)
    if (shared->kind[side] == 't') return !side;
  return word / shared->run & 1;
}

/* Whether it is the beginning of one version of the word and the end of another. Who reads while a word is written may see
 * that: the kernel copies by `rep movsb`, which need not move 8 bytes at once (seen on ext4, version 0x412 between 0x4da and
 * 0x512). */
static int is_torn(uint32_t word, uint64_t got, uint32_t low, uint32_t high) {
  for (int len = 1; len < 8; len++) {
    uint64_t start = ((uint64_t)1 << len * 8) - 1;
    int starts = 0, ends = 0;
    for (uint32_t version = low + (low & 1); version <= high; version += 2) {
      uint64_t other = got ^ content(word, version);
      starts |= !(other & start), ends |= !(other & ~start);
    }
    if (starts && ends) return 1;
  }
  return 0;
}

static int is_right(uint32_t word, uint64_t got, uint32_t low, uint32_t high) {
  if (got == 0) return (low | high) & 1 || (low != high && shared->kind[owner(word)] == 'f');
  uint32_t version = got >> 32;
  if (got == content(word, version) && !(version & 1) && low <= version && version <= high) return 1;
  return low != high && is_torn(word, got, low, high);
}

static void judge(int side, const char *view, uint32_t first, uint32_t count, const uint64_t *got, const uint32_t *low,
                  const uint32_t *high) {
  uint32_t wrong = 0, at = 0;
  for (uint32_t i = 0; i < count; i++)
    if (!is_right(first + i, got[i], low[i], high[i]) && wrong++ == 0) at = i;
  if (wrong == 0) return;
  fprintf(stderr, "%c beside %c, runs of %u words: %u of %u words wrong in %s; word %u (byte %u, of %c) is %llx, version %u; "
          "versions %u to %u are right\n", shared->kind[side], shared->kind[!side], shared->run, wrong, count, view,
          first + at, (first + at) * 8, shared->kind[owner(first + at)], (unsigned long long)got[at],
          (unsigned)(got[at] >> 32), low[at], high[at]);
  _exit(1);
}

/* Both come here before they do something, and go on at once: what they do to one page at once is what can go wrong. Waits
 * for a while only, as the other one may be about something else. */
static void meet(int side) {
  _Atomic uint32_t *mine = &shared->meetings[side], *other = &shared->meetings[!side];
  uint32_t meeting = atomic_load(mine) + 1, theirs = atomic_load(other);
  if (theirs > meeting) meeting = theirs;
  atomic_store(mine, meeting);
  for (int i = 0; i < 300 && atomic_load(other) < meeting; i++) __builtin_ia32_pause();
}

/* A word where the other one is at work just now, mostly. */
static uint32_t hot_word(int side) {
  if (below(8) == 0) return below(WORDS);
  uint32_t page = atomic_load(&shared->meetings[side]) * 7 % PAGES;
  uint32_t word = page * PAGE_WORDS + below(PAGE_WORDS);
  return word < WORDS ? word : WORDS - 1;
}

/* Reads some words through the opener and judges them. */
static void verify(struct opener *opener) {
  uint32_t align = opener->direct ? SECTOR_WORDS : 1;
  uint32_t first = hot_word(opener->side) / align * align, count = (1 + below(below(4) ? 64 : MAX_WORDS - 64) + align) / align * align;
  if (opener->direct && first + count > DIRECT_WORDS) first = 0;
  if (first + count > WORDS) count = WORDS - first;
  static uint32_t low[MAX_WORDS], high[MAX_WORDS];
  static uint64_t got[MAX_WORDS] __attribute__((aligned(4096)));
  for (uint32_t i = 0; i < count; i++) low[i] = atomic_load(&shared->acknowledged[first + i]);
  opener_read(opener, got, first, count);
  for (uint32_t i = 0; i < count; i++) high[i] = atomic_load(&shared->begun[first + i]);
  judge(opener->side, "a read of its own", first, count, got, low, high);
}

/* Writes a new version of some words of a run that is this side's. */
static void change(struct opener *opener) {
  static uint32_t versions;
  static uint64_t words[MAX_WORDS] __attribute__((aligned(4096)));
  uint32_t run = shared->run, align = opener->direct ? SECTOR_WORDS : 1;
  uint32_t end = opener->direct ? DIRECT_WORDS : WORDS;
  uint32_t first = hot_word(opener->side) / run * run;
  if (owner(first) != opener->side) first = first >= run ? first - run : first + run;
  if (owner(first) != opener->side || first + run > end) return;
  uint32_t count = below(run / align) + 1, skip = below(run / align - count + 1);
  first += skip * align, count *= align;
  versions += 2;
  int hole = shared->kind[opener->side] == 'f' && below(2);
  uint32_t version = versions | hole;
  for (uint32_t i = 0; i < count; i++) {
    words[i] = content(first + i, version);
    atomic_store(&shared->begun[first + i], version);
  }
  if (hole) opener_zero(opener, first, count);
  else opener_write(opener, words, first, count);
  for (uint32_t i = 0; i < count; i++) atomic_store(&shared->acknowledged[first + i], version);
}

static uint64_t now_ms(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000ull + at.tv_nsec / 1000000;
}

static void work(struct opener *opener, uint64_t until) {
  uint32_t turns = 0;
  while (atomic_load(&shared->stop) == 0 && now_ms() < until) {
    for (int i = 0; i < 8; i++, turns++) {
      meet(opener->side);
      if (opener->kind == 't') cut(opener);
      else if (below(3)) change(opener);
      if (below(2)) verify(opener);
    }
    if (below(24) == 0) {
      opener_close(opener);
      opener_open(opener);
    }
  }
  opener_close(opener);
  atomic_fetch_add(&shared->turns, turns);
}

/* All of the file through one view, when both have stopped. */
static void verify_all(const char *file, const char *view, int flags) {
  static uint64_t got[(PAGES + 1) * PAGE_WORDS] __attribute__((aligned(4096)));
  static uint32_t last[WORDS];
  int fd = open(file, O_RDONLY | flags);
  if (fd < 0) fail(2, "opening for %s", view);
  if (strcmp(view, "a mapping") == 0) {
    void *at = mmap(0, WORDS * 8, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail(2, "mmap");
    memcpy(got, at, WORDS * 8);
    munmap(at, WORDS * 8);
  } else {
    ssize_t len = pread(fd, got, sizeof got, 0);
    if (len < WORDS * 8) fail(1, "%s ends at %zd", view, len);
  }
  if (strcmp(view, "the cache") == 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  for (uint32_t i = 0; i < WORDS; i++) last[i] = atomic_load(&shared->acknowledged[i]);
  judge(0, view, 0, WORDS, got, last, last);
}

static void make_file(const char *file, struct opener *openers) {
  unlink(file);
  int made = open(file, O_CREAT | O_EXCL | O_WRONLY, 0644);
  if (made < 0) fail(2, "making the file");
  /* These are opened while the file is empty. */
  for (int side = 0; side < 2; side++)
    if (openers[side].kind == 'n') opener_open(&openers[side]);
  static uint64_t words[WORDS];
  for (uint32_t i = 0; i < WORDS; i++) words[i] = content(i, 0);
  if (pwrite(made, words, sizeof words, 0) != sizeof words) fail(2, "filling the file");
  close(made);
  for (int side = 0; side < 2; side++)
    if (openers[side].kind != 'n') opener_open(&openers[side]);
}

int main(int argc, char **argv) {
  if (argc != 7) return errno = EINVAL, fail(2, "two FILE SCRATCH MILLISECONDS SEED KIND KIND"), 2;
  seed = strtoull(argv[4], 0, 0) * 0x9e3779b97f4a7c15ull | 1;
  shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail(2, "memory");
  struct opener openers[2] = {0};
  for (int side = 0; side < 2; side++) {
    openers[side] = (struct opener){.side = side, .kind = *argv[5 + side], .file = argv[1], .scratch = argv[2]};
    openers[side].direct = strchr("dau", openers[side].kind) != 0;
    shared->kind[side] = openers[side].kind;
  }
  int direct = openers[0].direct || openers[1].direct;
  int mapped = openers[0].kind == 'm' || openers[1].kind == 'm';
  /* What is mapped and what goes past all caches does not meet in a page: nor do they agree on the kernel's ext4. */
  const uint32_t runs[] = {512, 1024, 64, 128, 1, 5, 32};
  shared->run = runs[below(direct && mapped ? 2 : direct ? 4 : 7)];
  make_file(argv[1], openers);
  uint64_t until = now_ms() + strtoull(argv[3], 0, 0);
  pid_t children[2];
  for (int side = 0; side < 2; side++) {
    children[side] = fork();
    if (children[side] < 0) fail(2, "fork");
    if (children[side]) continue;
    seed += side * 2 + 1000;
    work(&openers[side], until);
    _exit(0);
  }
  for (int side = 0; side < 2; side++) opener_close(&openers[side]);
  int code = 0;
  for (int side = 0; side < 2; side++) {
    int status;
    wait(&status);
    if (!WIFEXITED(status)) code = code ? code : 2;
    else if (WEXITSTATUS(status) && code != 1) code = WEXITSTATUS(status);
    if (code) atomic_store(&shared->stop, 1);
  }
  if (code) return code;
  verify_all(argv[1], "the cache", 0);
  verify_all(argv[1], "the disk", O_DIRECT);
  verify_all(argv[1], "the file read anew", 0);
  verify_all(argv[1], "a mapping", 0);
  printf("%u\n", atomic_load(&shared->turns));
  return 0;
}
