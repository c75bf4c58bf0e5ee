//! Locks owned by open files and by processes, between processes.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn locks() {
    judge("locks", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("flock", FLOCK),
    case("locks of processes", PROCESSES),
    case("locks of open files", FILES),
    case("waiting for locks", WAITING),
    case("locks are freed", FREED),
    case("deadlocks", DEADLOCK),
];

const FLOCK: &str = "
    put f x
    open a f RDONLY
    open b f RDWR
    flock a sh
    flock b sh
    flock b ex
    flock a un
    flock b ex
    flock a sh
    root2: open c f RDONLY
    root2: flock c sh
    root2: flock c ex
    flock b un
    root2: flock c ex
    flock a sh
    dup a d
    root2: flock c un
    flock a ex
    flock d sh
    root2: flock c sh
    root2: flock c ex
    close a
    root2: flock c ex
    close d
    root2: flock c ex
    rename f g
    flock b sh
    unlink g
    flock b sh
    root2: flock c un
    flock b ex
    mkdir d 755
    open e d RDONLY,DIRECTORY
    open h d RDONLY,DIRECTORY
    flock e ex
    flock h sh
    mknod p fifo 600
    open p p RDWR
    flock p ex
    open o . PATH
    flock o sh
    alice: open x d RDONLY
    alice: flock x sh
    flock e un
    alice: flock x ex
";

const PROCESSES: &str = "
    put f x*100
    open a f RDWR
    root2: open b f RDWR
    lock a w 0 10
    root2: lock b w 10 10
    root2: lock b w 9 1
    root2: lock b r 0 1
    root2: getlock b w 0 0
    root2: getlock b r 5 1
    root2: getlock b w 10 5
    getlock a w 0 0
    getlock a w 10 1
    lock a r 0 5
    root2: lock b r 0 5
    root2: lock b r 0 6
    root2: getlock b w 0 100
    root2: getlock b w 6 1
    lock a u 0 10
    root2: lock b w 0 0
    root2: getlock b w 0 0
    getlock a r 1000000 1
    lock a r 4611686018427387904 10
    root2: lock b u 3 2
    lock a w 3 2
    lock a w 3 3
    open c f RDONLY
    lock c r 3 1
    lock c w 3 1
    open d f WRONLY
    lock d r 50 1
    root2: lock b u 0 0
    lock a w 0 0
    close d
    root2: lock b w 0 0
    root2: lock b u 0 0
    lock a w 0 9223372036854775807
    lock a u 0 0
    flock a ex
    root2: lock b w 0 0
    root2: flock b sh
    open dir . RDONLY,DIRECTORY
    lock dir r 0 1
    lock dir w 0 1
";

const FILES: &str = "
    put f x
    open a f RDWR
    open b f RDWR
    olock a w 0 10
    olock b w 0 10
    olock b w 10 10
    olock b r 5 1
    getolock b w 0 0
    getlock a w 0 0
    lock a w 0 1
    lock a w 20 1
    dup a c
    close a
    olock b w 0 10
    close c
    olock b w 0 10
    root2: open d f RDWR
    root2: olock d r 0 1
    root2: lock d r 0 1
    root2: getlock d w 0 1
    root2: getolock d w 0 1
    olock b r 0 20
    root2: olock d r 0 1
    root2: olock d w 0 1
    olock b u 0 0
    root2: olock d w 0 0
";

const WAITING: &str = "
    put f x
    open a f RDWR
    root2: open b f RDWR
    root3: open c f RDWR
    flock a ex
    & root2: flock b sh wait
    ~ root2
    & root3: flock c sh wait
    ~ root3
    flock a un
    = root2
    = root3
    flock a ex
    root2: flock b un
    root3: flock c un
    lock a w 0 10
    & root2: lock b w 5 10 wait
    ~ root2
    & root3: lock c r 0 1 wait
    ~ root3
    lock a u 5 5
    = root2
    root2: getlock b w 0 5
    lock a u 0 0
    = root3
    & root: lock a w 0 0 wait
    ~ root
    end root3
    root2: lock b u 0 0
    = root
    getlock a w 0 0
    olock a r 0 1
    & root2: lock b w 0 0 wait
    ~ root2
    kill root
    = root2
";

const FREED: &str = "
    put f x
    open a f RDWR
    root2: open b f RDWR
    root2: open c f RDWR
    root2: lock b w 0 10
    lock a w 0 10
    root2: close c
    lock a w 0 10
    root2: lock b w 20 10
    root2: flock b ex
    flock a sh
    end root2
    lock a w 0 100
    flock a sh
    root3: open d f RDWR
    flock a un
    root3: flock d ex
    root3: lock d w 1000 1
    root3: olock d w 2000 1
    lock a w 1000 1
    kill root3
    lock a w 0 0
    flock a ex
    unlink f
";

const DEADLOCK: &str = "
    put f x
    open a f RDWR
    root2: open b f RDWR
    lock a w 0 1
    root2: lock b w 1 1
    & root2: lock b w 0 1 wait
    ~ root2
    lock a w 1 1 wait
    lock a u 0 0
    = root2
    root2: getlock b w 0 0
    getlock a w 0 0
";
