/* Makes a volume in a new image, writes files in it, lists them, and reads one back.
 *
 *     cc edit.c -o edit $(pkg-config --cflags --libs throughline) && ./edit disk.img
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <throughline.h>

/* Ends the program, if a call failed. */
static int64_t must(int64_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, tl_message(), strerror((int)-result));
        exit(1);
    }
    return result;
}

static void make(const char *image) {
    tl_mkfs_options *options = tl_mkfs_options_new();
    must(tl_mkfs_options_label(options, "from C"), "label");
    must(tl_mkfs_options_features(options, "^resize_inode"), "features");
    must(tl_mkfs(image, 64 << 20, options), image);
    tl_mkfs_options_free(options);
}

static void write_text(tl_volume *volume, const char *path, const char *text) {
    tl_file *file;
    must(tl_file_open(volume, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &file), path);
    size_t length = strlen(text);
    for (size_t done = 0; done < length;)
        done += (size_t)must(tl_pwrite(file, text + done, length - done, done), path);
    must(tl_fsync(file), path);
    tl_file_close(file);
}

static void list(tl_volume *volume, const char *path) {
    tl_dir *dir;
    tl_dirent entry;
    must(tl_opendir(volume, path, &dir), path);
    while (must(tl_readdir(dir, &entry), path) == 1) {
        char full[4096];
        tl_stat stat;
        snprintf(full, sizeof full, "%s/%s", path, entry.name);
        must(tl_stat_at(volume, full, false, &stat), full);
        printf("%06" PRIo32 " %5" PRIu64 " %s\n", stat.mode, stat.size, entry.name);
    }
    tl_closedir(dir);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s NEW-IMAGE\n", arguments[0]);
        return 2;
    }
    make(arguments[1]);

    tl_options *options = tl_options_new();
    must(tl_options_write(options, true), "write");
    tl_volume *volume;
    must(tl_open(arguments[1], options, &volume), arguments[1]);
    tl_options_free(options);

    must(tl_mkdir(volume, "/etc", 0755), "mkdir");
    write_text(volume, "/etc/motd", "hello from C\n");
    write_text(volume, "/etc/hostname", "image\n");
    must(tl_symlink(volume, "motd", "/etc/issue"), "symlink");
    must(tl_setxattr(volume, "/etc/motd", "user.origin", "C", 1, 0), "setxattr");
    list(volume, "/etc");

    char text[64], origin[8];
    tl_file *file;
    must(tl_file_open(volume, "/etc/issue", O_RDONLY, 0, &file), "open");
    int64_t length = must(tl_pread(file, text, sizeof text, 0), "read");
    tl_file_close(file);
    must(tl_getxattr(volume, "/etc/motd", "user.origin", origin, sizeof origin), "getxattr");
    printf("%.*s", (int)length, text);

    /* An error has a number and a reason. */
    int failed = tl_rmdir(volume, "/etc");
    printf("%s: %s\n", failed == -ENOTEMPTY ? "ENOTEMPTY" : "?", tl_message());

    must(tl_close(volume), "close");
    return 0;
}
