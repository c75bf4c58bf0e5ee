//! Fifos, sockets and devices.

use throughline_testing::pair::Recipe;

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn special() {
    judge("special", &USUAL, CASES);
}

#[test]
fn without_devices_and_setuid() {
    let recipe = Recipe {
        options: "nodev,nosuid,noexec",
        ..USUAL
    };
    judge("without devices and setuid", &recipe, REFUSING_CASES);
}

const CASES: &[Case] = &[
    case("fifos", FIFOS),
    case("sockets", SOCKETS),
    case("devices", DEVICES),
    case("nodes by others", OTHERS),
];

const REFUSING_CASES: &[Case] = &[case("nodev, nosuid, noexec", REFUSING)];

const FIFOS: &str = "
    mknod p fifo 644
    stat p
    open w p WRONLY,NONBLOCK
    & root2: open r p RDONLY
    open w p WRONLY
    = root2
    write w hello
    root2: read r 10
    write w more*1000
    root2: read r 1000
    root2: read r 5000
    fstat w
    close w
    root2: read r 10
    open w p WRONLY
    write w again
    rename p q
    root2: read r 10
    unlink q
    write w gone
    root2: read r 10
    root2: fstat r
    mknod p fifo 666
    chmod p 666
    open b p RDWR
    alice: open a p WRONLY
    alice: write a alice
    read b 10
    chmod p 600
    alice: open c p WRONLY
    link p p2
    same p p2
    mknod p fifo 600
    list .
";

const SOCKETS: &str = "
    bind s sock
    stat sock
    bind s2 sock
    root2: connect c sock
    accept s a
    root2: send c hello
    receive a 5
    send a answer
    root2: receive c 6
    chmod sock 700
    alice: connect c sock
    chmod sock 777
    alice: connect c sock
    open f sock RDONLY
    rename sock moved
    root2: connect d moved
    root2: connect d sock
    hangup s
    root2: connect e moved
    unlink moved
    root2: connect e moved
    put plain x
    root2: connect e plain
    symlink moved l
    bind t moved
    root2: connect g l
    mkdir d 755
    alice: bind x d/sock
    alice: bind x own
    stat own
    bind u {n*90}
    mknod dead socket 600
    root2: connect h dead
    list .
";

const DEVICES: &str = "
    mknod null char 666 1 3
    mknod zero char 644 1 5
    chmod null 666
    stat null
    stat zero
    open a null RDWR
    write a hello
    read a 10
    open b zero RDONLY
    read b 10
    alice: open c null WRONLY
    alice: write c x
    alice: open d zero WRONLY
    mknod big char 600 4095 1048575
    stat big
    mknod small block 600 255 255
    stat small
    mknod middle block 600 256 256
    stat middle
    open e small RDONLY
    mknod z block 600 0 0
    lstat z
    chown null 1001 1001
    stat null
    utimes null 1.000000000 2.000000000
    times null
    link null null2
    rename null null3
    stat null2
    content null3
    mknod plain file 640
    stat plain
    mknod plain file 640
    list .
";

const OTHERS: &str = "
    alice: mknod n char 600 1 3
    alice: mknod n block 600 7 0
    alice: mknod n char 600 0 0
    alice: mknod p fifo 600
    alice: mknod s socket 600
    alice: mknod f file 600
    alice: lstat n
    alice: lstat p
    alice: lstat s
    alice: lstat f
    bob: open a p RDWR
    list .
";

const REFUSING: &str = "
    mknod null char 666 1 3
    stat null
    open a null RDWR
    alice: open a null RDONLY
    run cp /usr/bin/id id
    chmod id 755
    run ./id -u
    access id x
    alice: access id x
    chown id 1002 1002
    chmod id 6755
    stat id
    put script #!/bin/sh%0aecho%20ran%0a
    chmod script 755
    run ./script
    run sh script
    statfs .
    mknod p fifo 600
    open p p RDWR
    write p x
    read p 1
    run setcap cap_net_raw+ep id
    run getcap id
";
