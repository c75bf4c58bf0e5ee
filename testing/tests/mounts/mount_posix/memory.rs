//! Memory-mapped files, shared and private, through `xfs_io`: no safe program maps memory itself.

use throughline_testing::pair::Recipe;
use throughline_testing::program;

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn memory() {
    if program::has(&["xfs_io"]) {
        judge("memory", &USUAL, CASES);
    }
}

#[test]
fn mapped_without_space() {
    let recipe = Recipe {
        mke2fs: "-t ext4 -b 4096 -m 0 -N 256",
        size: "16M",
        options: "",
    };
    if program::has(&["xfs_io"]) {
        let cases = [case("mapped without space", NO_SPACE)];
        judge("mapped without space", &recipe, &cases);
    }
}

const CASES: &[Case] = &[
    case("shared", SHARED),
    case("private", PRIVATE),
    case("mapped and written", COHERENT),
    case("mapped beyond the end", BEYOND),
];

const SHARED: &str = "
    put f x*16k
    run xfs_io -c mmap%20-rw%200%2016k -c mwrite%20-S%200x61%204k%204k -c msync%20-s f
    content f
    run xfs_io -c mmap%20-rw%200%2016k -c mwrite%20-S%200x62%20100%2010 f
    content f
    run xfs_io -r -c mmap%20-r%200%2016k -c mread%20-v%2090%2030 f
    mark f
    run xfs_io -c mmap%20-rw%200%204k -c mwrite%20-S%200x63%200%201 -c msync%20-s f
    since f
    content f
    truncate f 1M
    run xfs_io -c mmap%20-rw%200%201M -c mwrite%20-S%200x64%20512k%204k -c msync%20-s -c fsync f
    content f
    stat f
    run xfs_io -c mmap%20-rw%200%201M -c mwrite%20-S%200x65%20600k%2010 -c munmap \
        -c pread%20-q%20-v%20600k%2016 f
    run xfs_io -c fpunch%20512k%204k -c mmap%20-rw%200%201M -c mread%20-v%20512k%2016 \
        -c mwrite%20-S%200x66%20513k%2010 f
    content f
    chmod f 444
    alice: run xfs_io -r -c mmap%20-r%200%204k -c mread%20-v%200%2016 f
    alice: run xfs_io -r -c mmap%20-w%200%204k f
    open a f RDONLY
    fsync a
    content f
";

const PRIVATE: &str = "
    put f abcdefgh*512
    run xfs_io -r -c mmap%20-r%200%204k -c mread%20-v%200%2032 f
    run xfs_io -r -c mmap%20-rx%200%204k -c mread%20-v%208%208 f
    run cp /usr/bin/true t
    run ./t
    run cp /usr/bin/ls l
    run ./l f
    unlink l
    content f
";

const COHERENT: &str = "
    put f x*8192
    run xfs_io -c mmap%20-rw%200%208k -c mwrite%20-S%200x61%200%2010 -c pread%20-q%20-v%200%2016 f
    run xfs_io -c mmap%20-rw%200%208k -c pwrite%20-q%20-S%200x62%204%2010 -c mread%20-v%200%2016 f
    run xfs_io -c mmap%20-rw%200%208k -c mread%20-v%200%204 -c pwrite%20-q%20-S%200x63%200%204 \
        -c mread%20-v%200%2016 f
    content f
    run xfs_io -d -c mmap%20-rw%200%208k -c mwrite%20-S%200x64%200%2010 -c pread%20-q%20-v%200%20512 f
    run xfs_io -d -c mmap%20-rw%200%208k -c mread%20-v%200%204 -c pwrite%20-q%20-S%200x65%200%20512 \
        -c mread%20-v%200%204 f
    content f
    open w f WRONLY
    pwrite w 2 zz
    run xfs_io -r -c mmap%20-r%200%208k -c mread%20-v%200%2016 f
    run xfs_io -c mmap%20-rw%200%208k -c mwrite%20-S%200x66%200%208192 -c truncate%205000 -c truncate%208192 f
    content f
    run xfs_io -c mmap%20-rw%200%208k -c mwrite%20-S%200x67%206000%2010 -c fzero%204k%204k f
    content f
";

const NO_SPACE: &str = "
    open b m RDWR,CREATE 644
    ftruncate b 1M
    open a f RDWR,CREATE 644
    fill a
    fsync a
    run xfs_io -c mmap%20-rw%200%201M -c mwrite%20-S%200x61%200%201M -c msync%20-s m
    fsync b
    fdatasync b
    ftruncate b 0
    fsync b
    ftruncate a 0
    fsync a
    ftruncate b 1M
    run xfs_io -c mmap%20-rw%200%201M -c mwrite%20-S%200x61%200%201M -c msync%20-s m
    fsync b
    content m
";

const BEYOND: &str = "
    put f x*5000
    run xfs_io -c mmap%20-rw%200%208k -c mread%20-v%204992%2024 f
    run xfs_io -c mmap%20-rw%200%208k -c mwrite%20-S%200x61%206000%2010 -c msync%20-s f
    stat f
    truncate f 8192
    content f
    run xfs_io -c mmap%20-rw%200%2016k -c mread%2012k%201 f
    creat e 644
    run xfs_io -c mmap%20-rw%200%204k -c mwrite%200%201 e
    stat e
    open a f RDWR
    ftruncate a 4096
    run xfs_io -c mmap%20-rw%200%204k -c mwrite%20-S%200x62%204090%206 f
    ftruncate a 4097
    content f
";
