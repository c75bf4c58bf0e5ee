//! Reading directories, also while they change.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn directories() {
    judge("directories", &USUAL, CASES);
}

/// A directory of a hundred thousand names takes a while in the kernel, too.
#[test]
fn many_names() {
    let many = if throughline_testkit::tier::soak() {
        MANY_LONG
    } else {
        MANY
    };
    let recipe = throughline_testing::pair::Recipe {
        mke2fs: "-t ext4 -b 4096 -N 120000",
        ..USUAL
    };
    judge("many names", &recipe, &[case("many names", many)]);
}

const CASES: &[Case] = &[
    case("entries", ENTRIES),
    case("positions", PLACES),
    case("positions while names change", CHANGING),
    case("removal while reading", REMOVAL),
    case("small buffers", BUFFERS),
    case("counts of links", COUNTS),
];

const ENTRIES: &str = "
    list .
    creat f 644
    mkdir d 755
    symlink x l
    mknod p fifo 644
    mknod c char 644 1 3
    mknod b block 644 7 0
    mknod s socket 644
    list .
    list d
    count .
    list none
    list f
    opendir s f
    opendir s d
    rest s
    rest s
    creat d/x 644
    rest s
    rewind s
    rest s
    seen s
    next s 5
    closedir s
";

const PLACES: &str = "
    mkdir d 755
    each 0 500 creat d/name{i} 644
    opendir s d
    next s 100
    tell s hundred
    next s 100
    tell s twohundred
    rest s
    seen s
    return s hundred
    rest s
    seen s
    rewind s
    return s twohundred
    rest s
    seen s
    return s hundred
    next s 100
    seen s
    rewind s
    next s 1
    next s 1
    next s 1
    seen s
    rewind s
    rest s 1k
    seen s
    rewind s
    rest s
    rest s
    seen s
    mkdir small 755
    open raw small RDONLY,DIRECTORY
    seek raw set 0
    seek raw end 0
    seek raw cur 0
    seek raw set 0
";

const CHANGING: &str = "
    mkdir d 755
    each 0 800 creat d/keep{i} 644
    each 0 800 creat d/go{i} 644
    opendir s d
    next s 300
    tell s early
    next s 300
    tell s middle
    each 0 800 unlink d/go{i}
    rest s
    rewind s
    rest s
    seen s
    return s early
    skim s
    rewind s
    rest s
    each 0 2000 creat d/come{i} 644
    return s middle
    skim s
    each 0 2000 unlink d/come{i}
    rewind s
    rest s
    seen s
    each 0 400 rename d/keep{i} d/renamed{i}
    rewind s
    rest s
    seen s
    count d
    each 0 400 unlink d/renamed{i}
    each 400 800 unlink d/keep{i}
    rest s
    rewind s
    rest s
    seen s
    rmdir d
    rest s
    rewind s
    rest s
    seen s
";

const REMOVAL: &str = "
    mkdir d 755
    each 0 3000 creat d/f{i} 644
    run rm -r d
    list .
    mkdir d 755
    each 0 40 mkdir d/s{i} 755
    each 0 40 creat d/s{i}/f 644
    count d/s7
    run find d -delete
    list .
    mkdir d 755
    each 0 1000 creat d/f{i} 644
    opendir s d
    next s 10
    each 0 1000 unlink d/f{i}
    rest s
    creat d/new 644
    rewind s
    rest s
    seen s
";

const BUFFERS: &str = "
    mkdir d 755
    each 0 100 creat d/{n*200}{i} 644
    opendir s d
    next s 10 300
    next s 10 256
    next s 10 100
    rest s 300
    seen s
    rewind s
    rest s 64k
    seen s
    rewind s
    rest s 1M
    seen s
    creat d/{m*255} 644
    rewind s
    rest s 280
    rest s 281
    rest s 512
    seen s
";

const COUNTS: &str = "
    mkdir d 755
    stat d
    each 0 10 mkdir d/s{i} 755
    stat d
    creat d/f 644
    stat d
    mkdir e 755
    rename d/s0 e/s0
    stat d
    stat e
    rename d/s1 e/s0
    stat d
    stat e
    rename d/s2 d/x
    stat d
    rename d/f e/f
    stat e
    rename d/x e/f EXCHANGE
    stat d
    stat e
    rmdir d/s3
    stat d
    symlink s4 d/l
    stat d
    stat .
";

const MANY: &str = "
    mkdir d 755
    each 0 10000 creat d/name-number-{i} 644
    count d
    opendir s d
    rest s
    seen s
    stat d/name-number-9999
    stat d/name-number-10000
    creat d/name-number-5000 644
    each 0 10000 access d/name-number-{i} f
    rewind s
    next s 5000
    tell s half
    rest s
    return s half
    rest s
    seen s
    each 0 9000 unlink d/name-number-{i}
    count d
    rewind s
    rest s
    seen s
    each 0 1000 creat d/again-{i} 644
    count d
    each 0 1000 rename d/again-{i} d/name-number-{i}
    count d
    run rm -r d
    list .
";

const MANY_LONG: &str = "
    mkdir d 755
    each 0 100000 creat d/name-number-{i} 644
    count d
    opendir s d
    rest s
    seen s
    each 0 100000 access d/name-number-{i} f
    rewind s
    next s 50000
    tell s half
    rest s
    return s half
    rest s
    seen s
    each 0 90000 unlink d/name-number-{i}
    count d
    rewind s
    rest s
    seen s
    each 0 10000 creat d/again-{i} 644
    each 0 10000 rename d/again-{i} d/name-number-{i}
    count d
    run rm -r d
    list .
";
