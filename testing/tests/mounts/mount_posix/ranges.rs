//! Ranges of files: holes, allocation, truncation, copies.

use throughline_testing::pair::Recipe;

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn ranges() {
    judge("ranges", &USUAL, CASES);
}

/// In files without extents, `fallocate` supports other operations.
#[test]
fn ranges_of_mapped_files() {
    let recipe = Recipe {
        mke2fs: "-t ext4 -b 1024 -O ^extents,^64bit",
        size: "64M",
        options: "",
    };
    judge("ranges of mapped files", &recipe, MAPPED_CASES);
}

const CASES: &[Case] = &[
    case("holes", HOLES),
    case("allocation", ALLOCATION),
    case("holes punched", PUNCHED),
    case("zeroes", ZEROED),
    case("collapsed and inserted ranges", SHIFTED),
    case("allocation refused", REFUSED),
    case("truncation", TRUNCATION),
    case("copies", COPIES),
    case("copies within a file", COPIES_WITHIN),
    case("sendfile", SENDFILE),
];

const MAPPED_CASES: &[Case] = &[
    case("holes of mapped files", HOLES),
    case("allocation of mapped files", MAPPED),
    case("truncation of mapped files", TRUNCATION),
];

const HOLES: &str = "
    open a f RDWR,CREATE 644
    seek a data 0
    seek a hole 0
    holes a
    ftruncate a 1M
    seek a data 0
    seek a hole 0
    seek a data 1M
    seek a hole 1M
    seek a hole 2M
    seek a hole 1048575
    pwrite a 64k x*4096
    holes a
    seek a data 65k
    seek a hole 65k
    seek a data 66k
    fsync a
    holes a
    pwrite a 512k y*10000
    holes a
    fsync a
    holes a
    pwrite a 0 z
    fdatasync a
    holes a
    seek a data 100
    seek a hole 100
    ftruncate a 520k
    holes a
    ftruncate a 521k
    holes a
    pread a 0 521k
    open r f RDONLY
    holes r
    seek r data 8k
    read r 10
    pread r 512k 4
    ftruncate a 0
    holes a
    pwrite a 10M e
    fsync a
    holes a
    pread a 10485750 100
";

const ALLOCATION: &str = "
    open a f RDWR,CREATE 644
    fallocate a - 0 64k
    stat f
    blocks f
    pread a 0 100
    content f
    pwrite a 10k x*10
    fsync a
    content f
    blocks f
    fallocate a - 32k 64k
    stat f
    blocks f
    fallocate a KEEP_SIZE 96k 64k
    stat f
    blocks f
    pwrite a 100k y*10
    stat f
    content f
    ftruncate a 4k
    stat f
    fsync a
    fallocate a - 1 1
    stat f
    fallocate a - 4095 2
    stat f
    blocks f
    fallocate a - 1M 1
    stat f
    fallocate a - 4k 0
    open r f RDONLY
    pread r 1M 10
    open w g WRONLY,CREATE 644
    fallocate w - 0 10M
    stat g
    blocks g
    pwrite w 5M z*1M
    fsync w
    blocks g
    content g
    fallocate w KEEP_SIZE 0 20M
    stat g
    ftruncate w 10M
    blocks g
    ftruncate w 5M
    blocks g
    content g
";

const PUNCHED: &str = "
    open a f RDWR,CREATE 644
    write a x*64k
    fsync a
    fallocate a KEEP_SIZE,PUNCH_HOLE 8k 8k
    stat f
    fsync a
    blocks f
    holes a
    content f
    fallocate a KEEP_SIZE,PUNCH_HOLE 1000 100
    content f
    blocks f
    fallocate a KEEP_SIZE,PUNCH_HOLE 20000 10000
    content f
    fsync a
    blocks f
    holes a
    fallocate a KEEP_SIZE,PUNCH_HOLE 60k 1M
    stat f
    content f
    fallocate a KEEP_SIZE,PUNCH_HOLE 1M 1M
    stat f
    fallocate a PUNCH_HOLE 0 4k
    fallocate a KEEP_SIZE,PUNCH_HOLE 0 1G
    stat f
    fsync a
    blocks f
    holes a
    pwrite a 4k y*4k
    fallocate a KEEP_SIZE,PUNCH_HOLE 4k 4k
    content f
    pwrite a 0 dirty*1000
    fallocate a KEEP_SIZE,PUNCH_HOLE 100 10000
    pread a 0 200
    open r f RDONLY
    pread r 0 200
    pwrite a 150 again
    pread r 100 100
    fallocate a KEEP_SIZE,PUNCH_HOLE 0 0
    fallocate a KEEP_SIZE 64k 64k
    blocks f
    fallocate a KEEP_SIZE,PUNCH_HOLE 64k 64k
    blocks f
";

const ZEROED: &str = "
    open a f RDWR,CREATE 644
    write a x*64k
    fsync a
    fallocate a ZERO_RANGE 8k 8k
    stat f
    fsync a
    blocks f
    content f
    fallocate a ZERO_RANGE 1000 10000
    content f
    fallocate a ZERO_RANGE 60k 20k
    stat f
    content f
    fallocate a KEEP_SIZE,ZERO_RANGE 90k 20k
    stat f
    fsync a
    blocks f
    fallocate a ZERO_RANGE 1 1
    fallocate a ZERO_RANGE 1M 10
    stat f
    pread a 0 100
    pwrite a 30k dirty
    fallocate a ZERO_RANGE 30k 2
    pread a 30k 8
    fallocate a KEEP_SIZE,ZERO_RANGE 0 10
    content f
    open d f RDWR,DIRECT
    pwrite d 8k y*4096
    pread a 8k 10
    fallocate d ZERO_RANGE 8k 4k
    pread a 8k 10
    pread d 8k 4096
";

const SHIFTED: &str = "
    open a f RDWR,CREATE 644
    write a a*4096+b*4096+c*4096+d*4096+tail
    fallocate a COLLAPSE_RANGE 4k 4k
    fallocate a INSERT_RANGE 4k 8k
    fallocate a KEEP_SIZE,COLLAPSE_RANGE 0 4k
    fallocate a KEEP_SIZE,INSERT_RANGE 0 4k
    unlink f
";

const REFUSED: &str = "
    put f abc
    open a f RDWR
    fallocate a - 0 0
    fallocate a KEEP_SIZE 0 0
    fallocate a PUNCH_HOLE,ZERO_RANGE,KEEP_SIZE 0 4k
    fallocate a COLLAPSE_RANGE,ZERO_RANGE 0 4k
    fallocate a COLLAPSE_RANGE,INSERT_RANGE 0 4k
    fallocate a UNSHARE_RANGE 0 4k
    fallocate a NO_HIDE_STALE 0 4k
    fallocate a 0x100 0 4k
    fallocate a 0x80 0 4k
    fallocate a - 9223372036854775807 1
    fallocate a - 9223372036854775807 9223372036854775807
    open r f RDONLY
    fallocate r - 0 4k
    fallocate r KEEP_SIZE,PUNCH_HOLE 0 4k
    open p f WRONLY,APPEND
    fallocate p - 0 4k
    fallocate p KEEP_SIZE,PUNCH_HOLE 0 4k
    addflags f APPEND
    open p f WRONLY,APPEND
    fallocate p - 0 8k
    fallocate p KEEP_SIZE 0 16k
    fallocate p KEEP_SIZE,PUNCH_HOLE 0 4k
    fallocate p ZERO_RANGE 0 4k
    dropflags f APPEND
    addflags f IMMUTABLE
    fallocate a - 0 64k
    fallocate a KEEP_SIZE,PUNCH_HOLE 0 4k
    pwrite a 0 x
    ftruncate a 0
    dropflags f IMMUTABLE
    stat f
    content f
";

const TRUNCATION: &str = "
    open a f RDWR,CREATE 644
    write a x*10000
    ftruncate a 5000
    content f
    ftruncate a 10000
    content f
    pwrite a 9999 y
    ftruncate a 4096
    ftruncate a 8192
    content f
    pwrite a 8000 z*1000
    ftruncate a 8500
    ftruncate a 20k
    content f
    fsync a
    truncate f 100
    truncate f 5000
    content f
    blocks f
    ftruncate a 1G
    stat f
    pwrite a 512M mid
    ftruncate a 536870913
    content f
    ftruncate a 3
    content f
    open r f RDONLY
    seek r set 2
    ftruncate a 0
    read r 10
    ftruncate a 10
    read r 10
    open d f RDWR,DIRECT
    pwrite d 0 d*8192
    ftruncate a 4097
    pread d 4096 4096
    ftruncate d 12288
    pread a 4096 8192
    each 0 50 ftruncate a {i}000
    stat f
    content f
";

const COPIES: &str = "
    put src abcdefghij*1000
    open s src RDONLY
    open t t RDWR,CREATE 644
    copy s 0 t 0 10000
    content t
    copy s 5 t 100 20
    content t
    copy s - t - 100
    seek s cur 0
    seek t cur 0
    copy s - t - 100000
    seek s cur 0
    stat t
    copy s - t - 10
    copy s 10000 t 0 10
    copy s 9990 t 20000 100
    stat t
    content t
    copy s 0 t 0 0
    copy t 0 s 0 10
    open a t RDWR,APPEND
    copy s 0 a 0 10
    open sparse sparse RDWR,CREATE 644
    ftruncate sparse 10M
    pwrite sparse 1M x*100
    pwrite sparse 5M y*100k
    fsync sparse
    open to to RDWR,CREATE 644
    copy sparse 0 to 0 10M
    stat to
    content to
    alice: open s src RDONLY
    alice: open t t RDONLY
    alice: copy s 0 t 0 10
    open o /dev/null WRONLY
    copy s 0 o 0 10
    run cp --sparse=always sparse copied
    content copied
    run cp --reflink=always sparse cloned
    stat cloned
    run cp --reflink=auto -p src plain
    content plain
    open i to RDWR
    addflags to IMMUTABLE
    copy s 0 i 0 10
    dropflags to IMMUTABLE
";

const COPIES_WITHIN: &str = "
    put f abcdefghij*1000
    open a f RDWR
    copy a 0 a 20000 10000
    stat f
    copy a 0 a 5000 5000
    content f
    copy a 0 a 100 200
    copy a 100 a 0 200
    copy a 0 a 0 10
    copy a 0 a 10 10
    pread a 0 30
    copy a 29999 a 30000 100
    stat f
    open b f RDWR
    copy a 0 b 10 20
    copy a 0 b 50 20
    pread a 0 80
    seek a set 0
    seek b set 1000
    copy a - b - 500
    seek a cur 0
    seek b cur 0
    content f
";

const SENDFILE: &str = "
    put f abcdefghij*1000
    open a f RDONLY
    open t t RDWR,CREATE 644
    sendfile t a 5000
    seek a cur 0
    sendfile t a 100000
    sendfile t a 10
    stat t
    content t
    open p t RDWR,APPEND
    seek a set 0
    sendfile p a 10
    mknod q fifo 600
    open q q RDWR
    seek a set 0
    sendfile q a 30
    read q 100
    sendfile t q 10
";

const MAPPED: &str = "
    open a f RDWR,CREATE 644
    write a x*64k
    fallocate a - 0 128k
    fallocate a KEEP_SIZE 0 128k
    fallocate a ZERO_RANGE 0 4k
    fallocate a COLLAPSE_RANGE 0 4k
    fallocate a INSERT_RANGE 0 4k
    fallocate a KEEP_SIZE,PUNCH_HOLE 1000 30000
    stat f
    content f
    fsync a
    blocks f
    holes a
    pwrite a 4402341478399 x
    stat f
    pwrite a 17247252480 x
    stat f
    pwrite a 17247252479 x
    pwrite a 17247252480 y
    fsync a
    blocks f
    ftruncate a 17247252481
    ftruncate a 0
    fsync a
    blocks f
";
