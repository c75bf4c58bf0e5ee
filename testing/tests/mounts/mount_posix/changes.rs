//! What each way of changing a file takes from a program: setuid, setgid and capabilities; by root, by the
//! owner, by a member of its group, and by one who may not write. The kernel's ext4 is the judge.

use throughline_testing::pair::Recipe;
use throughline_testing::program;

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

/// Ways of changing the file `f`: what they are called, and the steps, of which `U` is the user. `s` is
/// another file, of which `s` is open.
const WAYS: &[(&str, &str)] = &[
    ("write only", "U open a f WRONLY; U write a y"),
    ("read and write", "U open a f RDWR; U write a y"),
    (
        "read first",
        "U open a f RDWR; U pread a 0 8; U pwrite a 4 y",
    ),
    ("append", "U open a f WRONLY,APPEND; U write a y"),
    ("append and read", "U open a f RDWR,APPEND; U write a y"),
    ("direct", "U open a f WRONLY,DIRECT; U pwrite a 0 d*4096"),
    (
        "direct, read and write",
        "U open a f RDWR,DIRECT; U pwrite a 0 d*4096",
    ),
    ("synchronous", "U open a f WRONLY,SYNC; U write a y"),
    ("with flags", "U open a f WRONLY; U pwritev2 a 0 q DSYNC"),
    (
        "with flags, read and write",
        "U open a f RDWR; U pwritev2 a 0 q DSYNC",
    ),
    ("nothing", "U open a f WRONLY; U write a ''"),
    ("splice", "U open a f WRONLY; U splice a s 4096"),
    (
        "splice, read and write",
        "U open a f RDWR; U splice a s 4096",
    ),
    ("sendfile", "U open a f WRONLY; U sendfile a s 4096"),
    (
        "sendfile, read and write",
        "U open a f RDWR; U sendfile a s 4096",
    ),
    ("copy", "U open a f WRONLY; U copy s 0 a 0 8192"),
    (
        "copy, read and write",
        "U open a f RDWR; U copy s 0 a 0 8192",
    ),
    ("clone", "U open a f RDWR; U clone a s"),
    ("ftruncate", "U open a f WRONLY; U ftruncate a 100"),
    ("truncate", "U truncate f 100"),
    ("truncate to the same size", "U truncate f 65536"),
    ("open to truncate", "U open a f WRONLY,TRUNC"),
    ("allocate", "U open a f RDWR; U fallocate a - 64k 64k"),
    (
        "allocate beyond the end",
        "U open a f WRONLY; U fallocate a KEEP_SIZE 64k 64k",
    ),
    (
        "punch",
        "U open a f RDWR; U fallocate a KEEP_SIZE,PUNCH_HOLE 4k 8k",
    ),
    (
        "punch, write only",
        "U open a f WRONLY; U fallocate a KEEP_SIZE,PUNCH_HOLE 4k 8k",
    ),
    ("zeros", "U open a f RDWR; U fallocate a ZERO_RANGE 4k 8k"),
    (
        "mapping",
        "U run xfs_io -c mmap%20-rw%200%2016k -c mwrite%20-S%200x61%204k%204k -c msync%20-s f",
    ),
    ("a change of nothing", "U open a f RDWR; U close a"),
    ("times", "U utimes f now now"),
    ("rename and link", "U rename f g; U link g f; U unlink g"),
    ("the same owner", "U chown f 1001 2000"),
    ("another owner", "U chown f 1002 2000"),
    (
        "no owner",
        "released 1; U chown f - -; listxattr ./f; stat f; run setcap cap_net_raw+ep f",
    ),
    (
        "twice",
        "U open a f WRONLY; U write a y; run setcap cap_net_raw+ep f; U write a z",
    ),
    (
        "twice, read and write",
        "U open a f RDWR; U write a y; run setcap cap_net_raw+ep f; U write a z",
    ),
    (
        "without capabilities at first",
        "run setcap -r f; U open a f WRONLY; U write a y; \
        listxattr f; run setcap cap_net_raw+ep f; U write a z",
    ),
    (
        "many attributes",
        "setxattr f user.a {x*2000}; U open a f WRONLY; U write a y; U write a z",
    ),
];
/// Each with the mode of the file: its owner is alice, and bob is in its group.
const USERS: [(&str, &str); 4] = [
    ("root", "6775"),
    ("alice", "6775"),
    ("bob", "6775"),
    ("dave", "6755"),
];

/// The script of all ways for a user: the file, a change, and what is left.
fn script(user: &str, mode: &str) -> &'static str {
    let mut script = format!("put s z*16k\nchmod s 644\n{user}: open s s RDONLY\n");
    for (_, steps) in WAYS {
        script += "put f x*64k\nchown f 1001 2000\n";
        script += &format!("chmod f {mode}\nrun setcap cap_net_raw+ep f\n");
        for step in steps.split(';') {
            let step = step.trim();
            match step.strip_prefix("U ") {
                Some(step) => script += &format!("{user}: {step}\n"),
                None => script += &format!("{step}\n"),
            }
        }
        script += "stat f\nlistxattr f\n";
        if steps.contains("open a") && !steps.contains("close a") {
            script += &format!("{user}: close a\n");
        }
        script += &format!("{user}: seek s set 0\nunlink f\n");
    }
    script.leak()
}

fn changes(recipe: &Recipe) {
    if !program::has(&["xfs_io", "setcap"]) {
        return;
    }
    let names = [
        "changes by root",
        "changes by alice",
        "changes by bob",
        "changes by dave",
    ];
    let cases = names.iter().zip(USERS);
    let cases: Vec<Case> = cases
        .map(|(name, (user, mode))| case(name, script(user, mode)))
        .collect();
    judge("changes", recipe, &cases);
}

#[test]
fn changes_take_what_they_take_on_the_kernels_ext4() {
    changes(&USUAL);
}

/// Attributes have a block of their own.
#[test]
fn changes_with_attributes_in_blocks() {
    changes(&Recipe {
        mke2fs: "-t ext4 -b 4096 -N 4000 -I 128",
        ..USUAL
    });
}
