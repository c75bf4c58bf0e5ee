/* throughline: ext2, ext3 and ext4 images from user space.
 *
 * Made of crates/capi/src; `THROUGHLINE_WRITE_HEADER=1 cargo test -p throughline-capi --test header` makes it
 * anew.
 *
 * Functions return 0 or more on success, else a negative errno, whose reason tl_message tells. On an error,
 * the places of results stay as they were. Paths of a volume begin at its root, with or without a slash at
 * their start; the root itself is "/". Flags of type int are on unless they are 0.
 *
 * What is required of a caller:
 * 1. A handle came from a function of this library, and was not closed or freed; no other call with it is in
 *    progress while it is. NULL is refused with -EINVAL, unless a function says what it means.
 * 2. Text ends with a NUL byte, and does not change during the call.
 * 3. Memory that is given with a size has that size. Nobody else uses it during the call; memory that is only
 *    read from may be read by others.
 * 4. A pointer to a result points to memory of its type.
 *
 * Volumes and files may be used by any number of threads at once; options and open directories by one at a
 * time. A signal handler must not call this library. The child of a fork must not use handles of its parent,
 * nor close them: it should end with _exit(2) or exec.
 *
 * Permissions of files are not checked. What is created belongs to the effective user and group of the
 * process.
 *
 * What is durable: a change survives a crash of the program or machine once tl_fsync, tl_fdatasync or tl_sync
 * has returned after it; closing the volume makes all durable. Without that, changes are written within about
 * 30 seconds (tl_options_durable_within bounds it). A crash may undo what was not durable, but never harms a
 * file that was synced, nor a volume with a journal. One without a journal needs e2fsck after a crash.
 */


#ifndef THROUGHLINE_H
#define THROUGHLINE_H

#include <stddef.h>
#include <stdint.h>

// An open directory, and a position in it. Only one thread may use it at a time.
typedef struct tl_dir tl_dir;

// An open file. Any number of threads may use it at once.
typedef struct tl_file tl_file;

// Options of tl_mkfs and tl_pack. Only one thread may use them at a time.
typedef struct tl_mkfs_options tl_mkfs_options;

// Options of tl_open. Only one thread may use them at a time.
typedef struct tl_options tl_options;

// An open volume. Any number of threads may use it at once.
typedef struct tl_volume tl_volume;

// Space of a volume, as of statvfs(3).
typedef struct {
  // Size of a block in bytes.
  uint64_t block_size;
  // Blocks that files can use.
  uint64_t blocks;
  // Free blocks.
  uint64_t free_blocks;
  // Free blocks without reserved ones.
  uint64_t available_blocks;
  // Inodes.
  uint64_t inodes;
  // Free inodes.
  uint64_t free_inodes;
  // The longest name in bytes.
  uint64_t name_max;
  // The UUID.
  uint8_t uuid[16];
} tl_space;

// A name of a directory.
typedef struct {
  // The number of its inode.
  uint64_t ino;
  // The type's bits of `st_mode`, such as S_IFREG.
  uint32_t type_bits;
  // 0.
  uint32_t reserved;
  // The name. It is valid until the next call with this directory.
  const char *name;
} tl_dirent;

// A time: seconds since 1970, and nanoseconds from 0 to 999999999.
typedef struct {
  // Seconds since 1970; negative before.
  int64_t seconds;
  // Nanoseconds after them.
  uint32_t nanoseconds;
  // 0.
  uint32_t reserved;
} tl_time;

// The metadata of an inode, as of stat(2).
typedef struct {
  // The number of the inode.
  uint64_t ino;
  // Length in bytes.
  uint64_t size;
  // Allocated units of 512 bytes.
  uint64_t blocks;
  // Type and permissions, as `st_mode`.
  uint32_t mode;
  // Hard links.
  uint32_t nlink;
  // The user.
  uint32_t uid;
  // The group.
  uint32_t gid;
  // Major number of a device node.
  uint32_t rdev_major;
  // Minor number of a device node.
  uint32_t rdev_minor;
  // The last read.
  tl_time atime;
  // The last change of the contents.
  tl_time mtime;
  // The last change of contents or metadata.
  tl_time ctime;
  // The creation; 0 if the volume does not store it.
  tl_time btime;
} tl_stat;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last call of this thread that returned a negative number. Never NULL. It is valid
// until the next such call of this thread, or the thread's end.
const char *tl_message(void);

// The version of the library, such as "0.1.0".
const char *tl_version(void);

// New options: for reading, the format by content, the only partition with a volume. Free them with
// tl_options_free.
tl_options *tl_options_new(void);

// Frees options; NULL is ignored.
void tl_options_free(tl_options *options);

// Opens for writing, too.
int tl_options_write(tl_options *options, int write);

// The partition of a disk: a number, label or UUID. NULL: the only one with a volume.
int tl_options_partition(tl_options *options, const char *name);

// Where the volume begins, in bytes, where no table of partitions says it.
int tl_options_offset(tl_options *options, uint64_t offset);

// The format of the image: "raw", "qcow2", "vmdk" or "vhdx". NULL: by content.
int tl_options_format(tl_options *options, const char *name);

// Allows a qcow2 image to name this file, or files below this directory, as its backing files. May be
// repeated.
int tl_options_backing(tl_options *options, const char *file);

// A qcow2 image that takes all changes instead of the image itself; it is made if need be. NULL: none.
int tl_options_overlay(tl_options *options, const char *file);

// The device or image of an external journal. NULL: none is named.
int tl_options_journal(tl_options *options, const char *file);

// Memory for cached data, in bytes. By default, a quarter of what the process may have.
int tl_options_cache(tl_options *options, uint64_t bytes);

// Opens a volume that was not closed cleanly as it is, without replaying its journal; for reading only.
int tl_options_no_replay(tl_options *options, int no_replay);

// Every call that changes something returns when the change survives a crash.
int tl_options_synchronous(tl_options *options, int synchronous);

// What is freed is discarded: an image file gets holes.
int tl_options_discard(tl_options *options, int discard);

// What is changed survives a crash after so many seconds at the latest, though nobody asks for it.
int tl_options_durable_within(tl_options *options, double seconds);

// Opens the volume in an image: for reading, if `options` is NULL. An image is open either for any number of
// readers, or for one writer: else it is `-EAGAIN` or `-EBUSY`. Close it with tl_close.
int tl_open(const char *image, const tl_options *options, tl_volume **volume);

// Makes all durable, and closes a volume; NULL is ignored. Whatever is returned, the handle must not be used
// again. Close files and directories of the volume before: else it is `-EBUSY`, all is durable, and the
// volume is closed with the last of them.
int tl_close(tl_volume *volume);

// Returns when all that was changed before survives a crash.
int tl_sync(const tl_volume *volume);

// The space of a volume.
int tl_statvfs(const tl_volume *volume, tl_space *space);

// Copies the label, without a NUL byte at its end, and returns its length, which is at most 16; `size` 0
// asks only for that. `-ERANGE` if it is longer than `size`.
int64_t tl_label(const tl_volume *volume, void *label, size_t size);

// Sets the label: at most 16 bytes.
int tl_set_label(const tl_volume *volume, const char *label);

// 1 if the volume cannot be written to, or not any more after a failure; else 0.
int tl_is_read_only(const tl_volume *volume);

// Opens a file with flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
// O_DIRECT, O_SYNC, O_DSYNC, O_NOATIME. Only a file that is opened for writing is created or truncated. A
// file that is created has the permissions `mode`. Close it with tl_file_close.
int tl_file_open(const tl_volume *volume, const char *at, int flags, uint32_t mode, tl_file **file);

// Closes a file; NULL is ignored. What was written to it and not synced stays in the volume's memory until
// it is written back.
void tl_file_close(tl_file *file);

// Reads at an offset, and returns the number of bytes: less than `size` only at the end of the file, or
// before an error, which the next call returns.
int64_t tl_pread(const tl_file *file, void *data, size_t size, uint64_t offset);

// Writes at an offset, or at the end of a file opened with O_APPEND, and returns the number of bytes: less
// than `size` only before an error, which the next call returns.
int64_t tl_pwrite(const tl_file *file, const void *data, size_t size, uint64_t offset);

// Returns when data and metadata of the file survive a crash.
int tl_fsync(const tl_file *file);

// Returns when the data of the file survives a crash, and what is needed to read it.
int tl_fdatasync(const tl_file *file);

// Sets the length.
int tl_ftruncate(const tl_file *file, uint64_t size);

// Allocates, punches a hole, zeroes, collapses or inserts a range, by the flags of fallocate(2).
int tl_fallocate(const tl_file *file, int mode, uint64_t offset, uint64_t size);

// The metadata of an open file, which may have lost its name.
int tl_fstat(const tl_file *file, tl_stat *stat);

// The offset of the first data at or after an offset, as of lseek(2) with SEEK_DATA; `-ENXIO` if there is
// none.
int64_t tl_seek_data(const tl_file *file, uint64_t offset);

// The offset of the first hole at or after an offset, as of lseek(2) with SEEK_HOLE: the end of the file
// counts. `-ENXIO` past it.
int64_t tl_seek_hole(const tl_file *file, uint64_t offset);

// Opens a directory. Close it with tl_closedir.
int tl_opendir(const tl_volume *volume, const char *at, tl_dir **directory);

// Fills in the next name, without "." and "..", and returns 1; 0 after the last one. After an error that is
// `-EUCLEAN`, damage, more names may follow. Names that are removed meanwhile may be left out.
int tl_readdir(tl_dir *directory, tl_dirent *entry);

// Closes a directory; NULL is ignored.
void tl_closedir(tl_dir *directory);

// Makes a directory with these permissions.
int tl_mkdir(const tl_volume *volume, const char *at, uint32_t mode);

// Removes an empty directory.
int tl_rmdir(const tl_volume *volume, const char *at);

// Removes the name of anything but a directory.
int tl_unlink(const tl_volume *volume, const char *at);

// Removes a directory and all below it.
int tl_rmtree(const tl_volume *volume, const char *at);

// Renames, atomically, also over a crash. With `flags` 0, a file or an empty directory at the new name is
// replaced; RENAME_NOREPLACE and RENAME_EXCHANGE are those of renameat2(2).
int tl_rename(const tl_volume *volume, const char *from, const char *to, uint32_t flags);

// Makes a hard link. A symbolic link is linked itself.
int tl_link(const tl_volume *volume, const char *from, const char *to);

// Makes a symbolic link `at` with a target.
int tl_symlink(const tl_volume *volume, const char *target, const char *at);

// Makes a named pipe, a socket or a device node, by the type in `mode` (S_IFIFO, S_IFSOCK, S_IFCHR,
// S_IFBLK), which has the permissions, too.
int tl_mknod(const tl_volume *volume,
             const char *at,
             uint32_t mode,
             uint32_t major,
             uint32_t minor);

// Copies the target of a symbolic link, without a NUL byte at its end, and returns its length; `size` 0 asks
// only for that. `-ERANGE` if it is longer than `size`.
int64_t tl_readlink(const tl_volume *volume, const char *at, void *target, size_t size);

// The metadata of what is at a path. A symbolic link is followed if `follow`.
int tl_stat_at(const tl_volume *volume, const char *at, int follow, tl_stat *stat);

// Sets the permissions; a symbolic link is followed.
int tl_chmod(const tl_volume *volume, const char *at, uint32_t mode);

// Sets user and group; 4294967295 (-1) leaves one as it is. A symbolic link is followed if `follow`.
int tl_chown(const tl_volume *volume, const char *at, uint32_t uid, uint32_t gid, int follow);

// Sets the times of the last read and of the last change of the contents; NULL: now. A symbolic link is
// followed if `follow`.
int tl_utimes(const tl_volume *volume,
              const char *at,
              const tl_time *atime,
              const tl_time *mtime,
              int follow);

// Copies the value of an extended attribute, and returns its length; `size` 0 asks only for that. `-ERANGE`
// if it is longer than `size`, `-ENODATA` if there is none. A symbolic link is followed.
int64_t tl_getxattr(const tl_volume *volume,
                    const char *at,
                    const char *name,
                    void *value,
                    size_t size);

// Sets an extended attribute. With `flags` 0 it may exist; XATTR_CREATE and XATTR_REPLACE are those of
// setxattr(2). A symbolic link is followed.
int tl_setxattr(const tl_volume *volume,
                const char *at,
                const char *name,
                const void *value,
                size_t size,
                uint32_t flags);

// Removes an extended attribute. A symbolic link is followed.
int tl_removexattr(const tl_volume *volume, const char *at, const char *name);

// Copies the names of all extended attributes, each with a NUL byte at its end, and returns their length;
// `size` 0 asks only for that. `-ERANGE` if they are longer than `size`. A symbolic link is followed.
int64_t tl_listxattr(const tl_volume *volume, const char *at, void *names, size_t size);

// New options: those of mke2fs for an ext4 volume. Free them with tl_mkfs_options_free.
tl_mkfs_options *tl_mkfs_options_new(void);

// Frees options; NULL is ignored.
void tl_mkfs_options_free(tl_mkfs_options *options);

// "ext2", "ext3", "ext4", or a type of mke2fs.conf: mke2fs -t.
int tl_mkfs_options_type(tl_mkfs_options *options, const char *name);

// What the volume is for, such as "largefile": mke2fs -T.
int tl_mkfs_options_usage(tl_mkfs_options *options, const char *names);

// Bytes of a block: a power of two from 1024 to 65536; the kernel mounts up to 4096. mke2fs -b.
int tl_mkfs_options_block_size(tl_mkfs_options *options, uint32_t bytes);

// Bytes of an inode: mke2fs -I.
int tl_mkfs_options_inode_size(tl_mkfs_options *options, uint32_t bytes);

// The least number of inodes: mke2fs -N.
int tl_mkfs_options_inodes(tl_mkfs_options *options, uint64_t count);

// Percent of the blocks that are kept for root, 0 to 50: mke2fs -m.
int tl_mkfs_options_reserved(tl_mkfs_options *options, double percent);

// The label, at most 16 bytes: mke2fs -L.
int tl_mkfs_options_label(tl_mkfs_options *options, const char *label);

// The UUID, 16 bytes, instead of a random one: mke2fs -U.
int tl_mkfs_options_uuid(tl_mkfs_options *options, const void *uuid);

// Features, separated by commas; with ^, those that are left out: mke2fs -O.
int tl_mkfs_options_features(tl_mkfs_options *options, const char *list);

// The journal, such as "size=64": mke2fs -J.
int tl_mkfs_options_journal(tl_mkfs_options *options, const char *list);

// Extended options, such as "lazy_itable_init=0": mke2fs -E.
int tl_mkfs_options_extended(tl_mkfs_options *options, const char *list);

// The time of the making, instead of now.
int tl_mkfs_options_time(tl_mkfs_options *options, const tl_time *time);

// Whether the UUID and the seed of hashes that are not given follow from all else: the same bytes each time,
// with the time given, too.
int tl_mkfs_options_reproducible(tl_mkfs_options *options, int reproducible);

// Whether the target may hold anything that is lost: mke2fs -F.
int tl_mkfs_options_overwrite(tl_mkfs_options *options, int overwrite);

// Makes a volume of so many bytes in a file, which is created, or on a block device; `size` 0: as large as
// the file or device is. `options` may be NULL. `-EEXIST` if the target holds something, unless it may be
// overwritten.
int tl_mkfs(const char *image, uint64_t size, const tl_mkfs_options *options);

// Makes a volume with the files of a directory, an archive (tar, also compressed), or an image of
// containers. `size` in bytes; 0: as small as it can be. No time in it is later than `epoch`, unless that is
// NULL, and the same files give the same bytes. `options` may be NULL. `-EEXIST` as of tl_mkfs.
int tl_pack(const char *source,
            const char *image,
            uint64_t size,
            const tl_time *epoch,
            const tl_mkfs_options *options);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THROUGHLINE_H */
