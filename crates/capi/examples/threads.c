/* Several threads write files of their own in one volume, and read those of the others.
 *
 *     cc -D_GNU_SOURCE threads.c -o threads $(pkg-config --cflags --libs throughline) -pthread && ./threads disk.img
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <throughline.h>

enum { THREADS = 4, FILES = 25, BYTES = 10000 };

static tl_volume *volume;
static pthread_barrier_t written;

static void must(int64_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, tl_message());
        exit(1);
    }
}

static void path_of(char *path, size_t size, int thread, int file) {
    snprintf(path, size, "/thread-%d/file-%d", thread, file);
}

static void *work(void *argument) {
    int me = *(int *)argument;
    char path[64];
    unsigned char data[BYTES], read[BYTES];
    snprintf(path, sizeof path, "/thread-%d", me);
    must(tl_mkdir(volume, path, 0755), path);
    for (int number = 0; number < FILES; number++) {
        tl_file *file;
        path_of(path, sizeof path, me, number);
        memset(data, me * FILES + number, sizeof data);
        must(tl_file_open(volume, path, O_RDWR | O_CREAT | O_EXCL, 0600, &file), path);
        must(tl_pwrite(file, data, sizeof data, 0), path);
        tl_file_close(file);
    }
    must(tl_sync(volume), "sync");
    pthread_barrier_wait(&written);
    int other = (me + 1) % THREADS;
    for (int number = 0; number < FILES; number++) {
        tl_file *file;
        path_of(path, sizeof path, other, number);
        memset(data, other * FILES + number, sizeof data);
        must(tl_file_open(volume, path, O_RDONLY, 0, &file), path);
        int64_t length = tl_pread(file, read, sizeof read, 0);
        must(length, path);
        if (length != BYTES || memcmp(read, data, sizeof data) != 0) {
            fprintf(stderr, "%s: other contents\n", path);
            exit(1);
        }
        tl_file_close(file);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s IMAGE\n", arguments[0]);
        return 2;
    }
    tl_options *options = tl_options_new();
    must(tl_options_write(options, true), "write");
    must(tl_open(arguments[1], options, &volume), arguments[1]);
    tl_options_free(options);

    pthread_t threads[THREADS];
    int numbers[THREADS];
    pthread_barrier_init(&written, NULL, THREADS);
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        if (pthread_create(&threads[number], NULL, work, &numbers[number]) != 0) abort();
    }
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    pthread_barrier_destroy(&written);
    must(tl_close(volume), "close");
    printf("%d files by %d threads\n", THREADS * FILES, THREADS);
    return 0;
}
