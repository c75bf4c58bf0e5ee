//! Reading and writing.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn data() {
    judge("data", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("reads and writes", READS_AND_WRITES),
    case("appending", APPENDING),
    case("direct", DIRECT),
    case("direct and unaligned", NOT_ALIGNED),
    case("direct and buffered", MIXED),
    case("synchronous", SYNCHRONOUS),
    case("flags of one call", FLAGS),
    case("offsets and limits", LIMITS),
    case("maximum file sizes", LARGEST),
    case("what must not be read or written", REFUSED),
];

const READS_AND_WRITES: &str = "
    open a f RDWR,CREATE 644
    read a 10
    write a hello
    seek a cur 0
    read a 10
    seek a set 1
    read a 3
    read a 10
    pread a 0 100
    pread a 5 10
    pread a 1000 10
    pwrite a 10 world
    content f
    seek a cur 0
    write a X
    content f
    seek a end 0
    seek a end -3
    read a 10
    seek a end 100
    write a end
    stat f
    content f
    seek a set 3000
    read a 1
    seek a cur -4000
    seek a cur -1000
    read a 0
    write a ''
    writev a ab cd '' ef
    content f
    pwrite a 4095 xy
    pwrite a 8191 zw
    content f
    pwrite a 100k a*100k
    pread a 100k 4
    pread a 200k 100k
    pread a 0 300k
    pwrite a 150k b*3
    pread a 153598 8
    open b f RDONLY
    pread b 153598 8
    pwrite a 153600 cccc
    pread b 153598 8
    advise a
    pread b 153598 8
    dup a c
    seek a set 77
    seek c cur 0
    read c 3
    seek a cur 0
    close a
    read c 3
    stat f
";

const APPENDING: &str = "
    put f abc
    open a f WRONLY,APPEND
    open b f WRONLY,APPEND
    write a 1
    write b 2
    write a 3
    content f
    seek a set 0
    write a 4
    seek a cur 0
    pwrite a 0 5
    content f
    seek a cur 0
    open c f RDWR
    write c C
    setfl c APPEND
    getfl c
    write c D
    seek c cur 0
    setfl c 0x0
    write c E
    content f
    truncate f 2
    write a 6
    content f
    truncate f 10k
    write b 7
    stat f
    open d f RDWR,APPEND,TRUNC
    write d x
    write a y
    write b z
    content f
    pread d 0 10
    each 0 200 write a line{i}%0a
    each 0 200 write b LINE{i}%0a
    stat f
    content f
    open e f WRONLY,APPEND,DIRECT
    truncate f 4096
    write e x*4096
    stat f
    content f
    alice: open a f WRONLY,APPEND
    chmod f 666
    alice: open a f WRONLY,APPEND
    alice: write a alice
    write a root
    alice: write a alice
    stat f
    pread d 8192 100
";

const DIRECT: &str = "
    open a f RDWR,CREATE,DIRECT 644
    pwrite a 0 a*4096
    pwrite a 4096 b*8192
    pread a 0 16k
    pwrite a 512 c*512
    pread a 0 4096
    pread a 512 512
    pwrite a 0 d*4096 512
    pread a 0 4096 512
    stat f
    pwrite a 16k e*1M
    stat f
    pread a 1M 64k
    pwrite a 1G f*4096
    stat f
    pread a 1073737728 8192
    pread a 512M 4096
    pwrite a 12k g*16k
    pread a 8k 24k
    ftruncate a 5000
    pread a 4096 4096
    pwrite a 4096 h*4096
    stat f
    ftruncate a 5000
    pread a 0 8192
    read a 4096
    seek a cur 0
    write a i*4096
    seek a cur 0
    fallocate a - 64k 64k
    pread a 64k 4096
    pwrite a 68k j*4096
    pread a 64k 12k
    fallocate a KEEP_SIZE,PUNCH_HOLE 68k 4k
    pread a 64k 12k
    setfl a 0x0
    pwrite a 1 k
    pread a 0 3
    setfl a DIRECT
    getfl a
    open b . RDONLY,DIRECT
    open c f WRONLY,DIRECT,APPEND
    stat f
    fsync a
";

const NOT_ALIGNED: &str = "
    open a f RDWR,CREATE,DIRECT 644
    pwrite a 0 a*4096
    pwrite a 512 c*100
    pwrite a 100 d*512
    pread a 100 600
    pread a 0 100
    pwrite a 0 e*4096
    pread a 0 4096
";

const MIXED: &str = "
    open d f RDWR,CREATE,DIRECT 644
    open b f RDWR
    pwrite b 0 a*8192
    pread d 0 8192
    pwrite d 0 b*4096
    pread b 0 8192
    pwrite b 4000 c*200
    pread d 0 8192
    pwrite d 4096 d*4096
    pwrite b 8190 e*4
    pread b 4090 5000
    pread d 8192 4096
    pwrite b 100k f*10
    pread d 98304 8192
    ftruncate d 100
    pread b 0 200
    ftruncate b 8192
    pread d 0 8192
    open w f WRONLY
    open r f RDONLY
    pread r 0 10
    pwrite w 0 w*10
    pread r 0 10
    pwrite d 0 x*4096
    pread r 0 10
    pwrite w 3 yy
    pread d 0 4096
    pread r 0 10
    pread b 0 10
    each 0 64 pwrite w {i} {i}
    pread r 0 100
    pread b 0 100
    open t f WRONLY,TRUNC
    pread r 0 100
    pread d 0 4096
    pwrite t 0 new
    pread r 0 100
    content f
    alice: open a f RDONLY
    alice: pread a 0 10
    pwrite w 0 A
    alice: pread a 0 10
    pwrite d 0 z*4096
    alice: pread a 4090 10
    fallocate w KEEP_SIZE,PUNCH_HOLE 0 4k
    alice: pread a 0 10
    pread b 0 10
";

const SYNCHRONOUS: &str = "
    open a f RDWR,CREATE,SYNC 644
    write a abc
    open b f RDWR,DSYNC
    pwrite b 3 def
    open c f RDWR,DSYNC,DIRECT
    pwrite c 4096 x*4096
    open d f RDWR,APPEND,SYNC
    write d end
    stat f
    content f
    fsync a
    fdatasync a
    open r f RDONLY
    fsync r
    fdatasync r
    open p . RDONLY,DIRECTORY
    fsync p
    fdatasync p
    mknod q fifo 600
    open q q RDWR
    fsync q
    open n f PATH
    fsync n
    unlink f
    fsync a
    pwrite a 0 still
    fsync a
    blocks .
    mkdir d 755
    addflags d DIRSYNC
    creat d/x 644
    creat y 644
    addflags y SYNC
    open y y RDWR
    write y abc
    flags y
    flags d
";

const FLAGS: &str = "
    open a f RDWR,CREATE 644
    pwritev2 a 0 abcdef 0x0
    pwritev2 a - gh 0x0
    seek a cur 0
    content f
    pwritev2 a 0 app APPEND
    content f
    pwritev2 a - app2 APPEND
    seek a cur 0
    content f
    pwritev2 a 2 ds DSYNC
    pwritev2 a 2 sy SYNC
    pwritev2 a 2 hp HIPRI
    content f
    preadv2 a 0 5 0x0
    preadv2 a - 3 0x0
    preadv2 a 0 5 HIPRI
    preadv2 a 0 5 0x1000000
    pwritev2 a 0 x 0x1000000
    open b f RDWR,APPEND
    pwritev2 b 0 NOAPP 0x20
    content f
    pwritev2 b 0 app APPEND
    content f
    pwritev2 b 0 x 0x60
    open d f RDWR,DIRECT
    pwritev2 d 0 y*4096 DSYNC
    preadv2 d 0 4096 HIPRI
    stat f
";

const LIMITS: &str = "
    open a f RDWR,CREATE 644
    limit 10k
    pwrite a 0 a*20k
    stat f
    pwrite a 10k b
    signals
    pwrite a 20k b
    signals
    pwrite a 9k b*1024
    pwrite a 10239 bb
    signals
    ftruncate a 10k
    ftruncate a 10241
    signals
    truncate f 20k
    signals
    fallocate a - 0 20k
    signals
    fallocate a KEEP_SIZE 0 20k
    signals
    open d f RDWR,DIRECT
    pwrite d 0 d*16k
    signals
    stat f
    pwrite d 12k d*4k
    signals
    open b f RDWR,APPEND
    ftruncate a 10230
    write b c*20
    stat f
    write b c
    signals
    put src s*30k
    signals
    open s src RDONLY
    open t t RDWR,CREATE 644
    copy s 0 t 9k 4k
    signals
    copy s 0 t 10k 4k
    signals
    stat t
    creat g 644
    mkdir d 755
    symlink x l
    setxattr g user.a x*1000
    limit 0
    pwrite a 0 x
    signals
    write a ''
    creat h 644
    stat f
";

const LARGEST: &str = "
    open a f RDWR,CREATE 644
    pwrite a 17592186040319 x
    stat f
    pwrite a 17592186040320 x
    pwrite a 17592186040319 xy
    stat f
    pwrite a 9223372036854775806 x
    ftruncate a 17592186040320
    ftruncate a 17592186040321
    ftruncate a 17592186044415
    ftruncate a 17592186044416
    ftruncate a 9223372036854775807
    truncate f 9223372036854775807
    fallocate a KEEP_SIZE 17592186040320 4096
    fallocate a - 17592186040319 4096
    fallocate a KEEP_SIZE 9223372036854775807 1
    seek a set 17592186040320
    seek a set 17592186040321
    seek a set 17592186044416
    seek a set 9223372036854775807
    seek a data 0
    seek a data 17592186040319
    seek a hole 17592186040319
    pread a 17592186040310 20
    pread a 9223372036854775800 7
    preadv2 a 9223372036854775807 7 0x0
    stat f
    ftruncate a 0
    truncate f 17592186040320
    stat f
    blocks f
    open d f RDWR,DIRECT
    pwrite d 17592186036224 y*4096
    pwrite d 17592186040320 y*4096
    pread d 17592186036224 8192
    unlink f
";

const REFUSED: &str = "
    put f abc
    open r f RDONLY
    open w f WRONLY
    write r x
    read w 1
    pread w 0 1
    ftruncate r 0
    fallocate r - 0 10
    open d . RDONLY
    read d 10
    pread d 0 10
    write d x
    ftruncate d 0
    fallocate d - 0 10
    seek d set 0
    open p f PATH
    read p 1
    write p 1
    seek p set 0
    ftruncate p 0
    truncate . 0
    truncate none 0
    truncate f/x 0
    mknod q fifo 600
    truncate q 0
    open q q RDWR
    ftruncate q 0
    seek q set 0
    pread q 0 1
    fallocate q - 0 10
    open c /dev/null RDWR
    fallocate c - 0 10
    symlink q l
    truncate l 0
    copy r 0 d 0 10
    copy d 0 w 0 10
    copy w 0 w 0 10
    copy r 0 r 0 10
    sendfile w r 3
    sendfile r w 3
    content f
";
