/* What a caller does wrong, and what the edges are: each line prints a function and what it returned. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <throughline.h>

#define SHOW(call) printf("%s: %s\n", #call, name(call))

static const char *name(int64_t result) {
    static char number[32];
    if (result >= 0) {
        snprintf(number, sizeof number, "%lld", (long long)result);
        return number;
    }
    switch (-result) {
    case EINVAL: return "EINVAL";
    case ENOENT: return "ENOENT";
    case ERANGE: return "ERANGE";
    case ENODATA: return "ENODATA";
    case EBUSY: return "EBUSY";
    case EAGAIN: return "EAGAIN";
    case ENOTDIR: return "ENOTDIR";
    case EEXIST: return "EEXIST";
    case EROFS: return "EROFS";
    case EISDIR: return "EISDIR";
    case ENXIO: return "ENXIO";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    default: snprintf(number, sizeof number, "%lld %s", (long long)result, tl_message()); return number;
    }
}

int main(int count, char **arguments) {
    const char *image = count > 1 ? arguments[1] : "";
    tl_volume *volume = NULL, *second = NULL;
    tl_file *file = NULL, *read_only = NULL;
    tl_mkfs_options *over = tl_mkfs_options_new();
    tl_stat stat;
    tl_time wrong = {0, 1000000000, 0};
    char small[2], large[300];

    SHOW(tl_open(NULL, NULL, &volume));
    SHOW(tl_open(image, NULL, NULL));
    SHOW(tl_open("/nowhere/at all", NULL, &volume));
    SHOW(tl_mkfs(image, 8 << 20, NULL));
    SHOW(tl_mkfs(image, 8 << 20, NULL));
    SHOW(tl_pack("/nowhere/at all", image, 0, NULL, NULL));
    SHOW(tl_pack(NULL, image, 0, &wrong, NULL));
    SHOW(tl_close(NULL));
    tl_file_close(NULL);
    tl_closedir(NULL);
    tl_options_free(NULL);
    tl_mkfs_options_free(NULL);

    SHOW(tl_open(image, NULL, &volume));
    SHOW(tl_is_read_only(volume));
    SHOW(tl_mkdir(volume, "/d", 0700));
    SHOW(tl_close(volume));

    tl_options *options = tl_options_new();
    SHOW(tl_options_format(options, "cow"));
    SHOW(tl_options_format(options, "\xff"));
    SHOW(tl_options_format(options, NULL));
    SHOW(tl_options_durable_within(options, -1.0));
    SHOW(tl_options_write(NULL, true));
    SHOW(tl_options_write(options, true));
    SHOW(tl_open(image, options, &volume));
    SHOW(tl_open(image, options, &second) < 0);
    tl_options_free(options);

    SHOW(tl_file_open(volume, "/f", O_RDWR | O_CREAT | O_EXCL, 0600, &file));
    SHOW(tl_file_open(volume, "/f", O_RDWR | O_CREAT | O_EXCL, 0600, &file));
    SHOW(tl_file_open(volume, "/g", O_RDONLY | O_DIRECTORY, 0, &file));
    SHOW(tl_file_open(volume, "/", O_RDWR, 0, &file));
    SHOW(tl_pwrite(file, "abc", 3, 5000));
    SHOW(tl_pwrite(file, NULL, 3, 0));
    SHOW(tl_pwrite(file, NULL, 0, 0));
    SHOW(tl_pread(file, large, sizeof large, 5000));
    SHOW(tl_pread(file, large, sizeof large, 6000));
    SHOW(tl_pread(file, large, (size_t)-1, 0));
    SHOW(tl_pread(NULL, large, sizeof large, 0));
    SHOW(tl_seek_data(file, 0));
    SHOW(tl_seek_data(file, 6000));
    SHOW(tl_fallocate(file, 0x4000, 0, 4096));
    SHOW(tl_ftruncate(file, UINT64_MAX) < 0);
    SHOW(tl_file_open(volume, "/f", O_RDONLY | O_APPEND, 0, &read_only));
    SHOW(tl_pwrite(read_only, "abc", 3, 0) < 0);
    tl_file_close(read_only);
    SHOW(tl_file_open(volume, "/new", O_RDONLY | O_CREAT, 0600, &read_only));
    SHOW(tl_fstat(file, NULL));
    SHOW(tl_fstat(file, &stat));
    SHOW(stat.size == 5003 && stat.mode == 0100600 && stat.nlink == 1);
    SHOW(tl_utimes(volume, "/f", &wrong, NULL, true));
    SHOW(tl_utimes(volume, "/f", NULL, NULL, true));
    SHOW(tl_symlink(volume, "some target", "/l"));
    SHOW(tl_readlink(volume, "/l", small, sizeof small));
    SHOW(tl_readlink(volume, "/l", NULL, 0));
    SHOW(tl_readlink(volume, "/l", large, sizeof large));
    SHOW(tl_getxattr(volume, "/f", "user.none", large, sizeof large));
    SHOW(tl_setxattr(volume, "/f", "user.some", "value", 5, 2));
    SHOW(tl_setxattr(volume, "/f", "user.some", "value", 5, 4));
    SHOW(tl_setxattr(volume, "/f", "user.some", "value", 5, 1));
    SHOW(tl_setxattr(volume, "/f", "user.some", "value", 5, 1));
    SHOW(tl_listxattr(volume, "/f", large, sizeof large));
    SHOW(tl_getxattr(volume, "/f", "user.some", small, sizeof small));
    SHOW(tl_rename(volume, "/f", "/h", 8));
    SHOW(tl_rename(volume, "/f", "/l", 1));
    SHOW(tl_rename(volume, "/f", "/h", 0));
    SHOW(tl_mknod(volume, "/n", 0040000, 0, 0));
    SHOW(tl_mknod(volume, "/n", 0010644, 0, 0));
    SHOW(tl_symlink(volume, "/d", "/to-d"));
    SHOW(tl_mkdir(volume, "/d", 0700));
    SHOW(tl_rmtree(volume, "/to-d/"));
    SHOW(tl_mkfs_options_overwrite(over, 2));
    SHOW(tl_mkfs(image, 0, over) < 0);
    SHOW(tl_pack("include", image, 0, NULL, over) < 0);
    SHOW(tl_is_read_only(volume));
    SHOW(tl_set_label(volume, "new label"));
    SHOW(tl_label(volume, large, sizeof large));
    SHOW(tl_close(volume));
    SHOW(tl_pwrite(file, "xyz", 3, 0));
    tl_file_close(file);
    SHOW(tl_pack("include", image, 0, NULL, over));
    tl_mkfs_options_free(over);
    return 0;
}
