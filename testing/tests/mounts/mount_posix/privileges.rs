//! Setuid and setgid bits, and file capabilities: which operations remove them.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn privileges() {
    judge("privileges", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("stripped by writes", WRITES),
    case("stripped by truncation and allocation", TRUNCATION),
    case("stripped by chown", CHOWNS),
    case("not stripped", KEPT),
    case("capabilities of files", CAPABILITIES),
    case("setuid programs", PROGRAMS),
    case("setuid programs that are changed", CHANGED),
];

const WRITES: &str = "
    put f xxxx
    chown f 1001 2000
    chmod f 6777
    open r f RDWR
    write r y
    stat f
    alice: open a f RDWR
    alice: write a y
    stat f
    chmod f 6767
    alice: pwrite a 2 z
    stat f
    chmod f 6777
    bob: open b f WRONLY,APPEND
    bob: write b end
    stat f
    chmod f 4777
    bob: write b end
    stat f
    chmod f 2777
    bob: write b end
    stat f
    chmod f 2767
    bob: write b end
    stat f
    chmod f 6777
    bob: write b ''
    stat f
    chmod f 6777
    alice: open d f WRONLY,DIRECT
    alice: pwrite d 0 d*4096
    stat f
    chmod f 6777
    alice: pwritev2 a 0 q DSYNC
    stat f
    put src source
    chmod f 6777
    bob: open s src RDONLY
    bob: open c f RDWR
    bob: copy s 0 c 0 3
    stat f
    chmod f 6777
    bob: sendfile c s 4
    stat f
    content f
    mark f
    chmod f 4755
    chown f 1002 2000
    chmod f 4777
    bob: pwrite c 0 m
    since f
    stat f
";

const TRUNCATION: &str = "
    put f xxxx
    chown f 1001 2000
    chmod f 6777
    truncate f 3
    stat f
    bob: truncate f 2
    stat f
    chmod f 6777
    bob: truncate f 2
    stat f
    chmod f 6777
    bob: open a f RDWR
    bob: ftruncate a 100
    stat f
    chmod f 6777
    bob: open b f WRONLY,TRUNC
    stat f
    chmod f 6777
    bob: fallocate a - 0 8k
    stat f
    chmod f 6777
    bob: fallocate a KEEP_SIZE,PUNCH_HOLE 0 4k
    stat f
    chmod f 6777
    bob: fallocate a ZERO_RANGE 0 4k
    stat f
    chmod f 6777
    bob: fallocate a KEEP_SIZE 16k 4k
    stat f
    chmod f 6777
    alice: truncate f 5
    stat f
    chmod f 6767
    alice: truncate f 4
    stat f
    chmod f 6767
    alice: open c f WRONLY,TRUNC
    stat f
    open r f RDWR
    chmod f 6777
    ftruncate r 9
    stat f
    fallocate r - 0 64k
    stat f
    open r2 f WRONLY,TRUNC
    stat f
";

const CHOWNS: &str = "
    put f x
    # While a program may write to the file, the bits may be cleared by any program.
    released 0
    chmod f 6777
    chown f 1001 1001
    stat f
    chmod f 6777
    chown f - -
    stat f
    chmod f 6777
    chown f 1001 1001
    stat f
    chmod f 6767
    chown f 1002 2000
    stat f
    chmod f 6777
    bob: chown f - 2000
    stat f
    chmod f 6777
    bob: chown f - 1002
    stat f
    chmod f 6777
    bob: chown f - -
    stat f
    chmod f 6777
    alice: chown f - -
    stat f
    chmod f 2767
    alice: chown f - -
    stat f
    chmod f 777
    alice: chown f - -
    stat f
    mkdir d 755
    chmod d 6777
    chown d 1002 1002
    stat d
    bob: chown d - 2000
    stat d
    mknod p fifo 644
    chmod p 6777
    chown p 1 1
    stat p
";

const KEPT: &str = "
    put f xxxx
    chmod f 6755
    open a f RDONLY
    read a 4
    utimes f now now
    stat f
    rename f g
    link g h
    unlink h
    stat g
    setxattr g user.a x
    stat g
    chmod g 6777
    alice: open b g RDWR
    alice: close b
    stat g
    chown g 1001 1001
    chmod g 6755
    alice: utimes g now now
    alice: setxattr g user.b y
    alice: link g i
    alice: rename i j
    stat g
";

const CAPABILITIES: &str = "
    put f xxxx
    chmod f 777
    run setcap cap_net_raw+ep f
    listxattr f
    open r f RDWR
    write r y
    listxattr f
    run setcap cap_net_raw+ep f
    alice: open a f RDWR
    alice: write a z
    listxattr f
    run setcap cap_net_raw+ep f
    alice: truncate f 2
    listxattr f
    run setcap cap_net_raw+ep f
    truncate f 1
    listxattr f
    run setcap cap_net_raw+ep f
    chown f 1001 1001
    listxattr f
    run setcap cap_net_raw+ep f
    chmod f 700
    listxattr f
    chown f 0 0
    chmod f 777
    run setcap cap_net_raw+ep f
    open t f WRONLY,TRUNC
    listxattr f
    run setcap cap_net_raw+ep f
    alice: fallocate a - 0 4k
    listxattr f
    run setcap cap_net_raw+ep f
    rename f g
    link g h
    listxattr h
    run getcap h
    alice: run setcap cap_net_raw+ep f
    alice: setxattr h security.capability x
    setxattr h security.capability xyz
";

const PROGRAMS: &str = "
    run cp /usr/bin/id id
    chmod id 755
    alice: run ./id -u
    chown id 1002 1002
    chmod id 4755
    alice: run ./id -u
    chmod id 2755
    alice: run ./id -g
    chmod id 6755
    bob: run ./id -G
    carol: run ./id -un
    chmod id 644
    alice: run ./id -u
    chmod id 755
    open w id WRONLY
    alice: run ./id -u
    close w
    alice: run ./id -u
    put script #!/bin/sh%0aecho+%20+ran%0a
    chmod script 755
    alice: run ./script
    chmod script 711
    alice: run ./script
";

// A program runs with the mode that the kernel has cached: no `stat` between a change and the program, which
// would refresh it.
const CHANGED: &str = "
    run cp /usr/bin/id id
    run cp /usr/bin/id source
    chmod id 4777
    alice: run ./id -u
    alice: open w id WRONLY,APPEND
    alice: write w x
    bob: run ./id -u
    alice: close w
    bob: run ./id -u
    alice: open r id RDWR
    run chmod 4777 id
    run ./id -u
    alice: pwrite r 200000 x
    alice: close r
    bob: run ./id -u
    chmod id 4777
    alice: truncate id 300000
    bob: run ./id -u
    chmod id 4777
    alice: open w id WRONLY
    alice: fallocate w - 300000 4096
    alice: close w
    bob: run ./id -u
    chmod id 4777
    alice: open w id RDWR
    alice: fallocate w KEEP_SIZE 310000 4096
    alice: close w
    bob: run ./id -u
    chmod id 4777
    alice: open s source RDONLY
    alice: open w id WRONLY
    alice: copy s 0 w 400000 4096
    alice: close w
    bob: run ./id -u
    chmod id 4777
    alice: open w id WRONLY,DIRECT
    alice: pwrite w 409600 d*4096
    alice: close w
    bob: run ./id -u
    chmod id 4777
    alice: open w id WRONLY,TRUNC
    run cp source id
    alice: close w
    bob: run ./id -u
    chown id 0 2001
    chmod id 2777
    alice: run ./id -g
    alice: open w id WRONLY,APPEND
    alice: write w x
    alice: close w
    alice: run ./id -g
    chmod id 2767
    alice: open w id WRONLY
    alice: pwrite w 200000 x
    stat id
    alice: close w
    chmod id 2767
    carol: open w id WRONLY
    carol: pwrite w 200000 x
    carol: fallocate w - 300000 4096
    stat id
    carol: close w
    carol: truncate id 200000
    stat id
    alice: truncate id 190000
    stat id
    chmod id 2767
    alice: open w id WRONLY
    alice: fallocate w - 300000 4096
    stat id
    alice: close w
    chown id 1001 2000
    released 1
    chmod id 2767
    alice: chown id - -
    stat id
    chmod id 2767
    bob: open w id WRONLY
    bob: pwrite w 0 x
    stat id
";
