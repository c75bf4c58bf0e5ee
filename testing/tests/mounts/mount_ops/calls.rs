//! The choice of calls.

use std::collections::BTreeSet;

use fastrand::Rng;
use throughline_testing::Ids;

/// The callers.
pub(crate) const PEOPLE: [Ids; 3] = [
    Ids::ROOT,
    Ids {
        uid: 1001,
        gid: 1001,
        groups: &[2000],
    },
    Ids {
        uid: 1002,
        gid: 1002,
        groups: &[],
    },
];

const DIRS: [&str; 5] = ["", "p/", "q/", "p/r/", "longer-name-of-a-directory/"];
const NAMES: [&str; 9] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "p",
    "q",
    "r",
    "longer-name-of-a-directory",
];
const HANDLES: u32 = 5;
/// ACLs with user, one named user, group, mask and others.
const LISTS: [&str; 2] = [
    "%02%00%00%00%01%00%07%00%ff%ff%ff%ff%02%00%06%00%e9%03%00%00%04%00%05%00%ff%ff%ff%ff\
     %10%00%07%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff%ff",
    "%02%00%00%00%01%00%06%00%ff%ff%ff%ff%02%00%07%00%ea%03%00%00%04%00%06%00%ff%ff%ff%ff\
     %10%00%05%00%ff%ff%ff%ff%20%00%00%00%ff%ff%ff%ff",
];

/// A stream of calls. The next call depends on which earlier ones succeeded, because open files must be
/// known.
pub(crate) struct Calls {
    random: Rng,
    open: [BTreeSet<String>; PEOPLE.len()],
    /// What is open if the last call succeeded.
    opening: Option<(usize, String)>,
    /// The call that sets an attribute: through symbolic links, if they may not have their own.
    set_attribute: &'static str,
}

impl Calls {
    /// With or without attributes on symbolic links themselves.
    pub(crate) fn new(seed: u64, on_links: bool) -> Self {
        Self {
            random: Rng::with_seed(seed),
            open: Default::default(),
            opening: None,
            set_attribute: if on_links { "lsetxattr" } else { "setxattr" },
        }
    }

    /// The next call and its caller.
    pub(crate) fn draw(&mut self) -> (usize, String) {
        let who = [0, 0, 0, 0, 0, 1, 1, 2][self.random.usize(..8)];
        let line = match self.random.u32(..100) {
            0..=21 => self.of_names(),
            22..=33 => self.opens(who),
            34..=69 => self.of_handles(who),
            70..=84 => self.of_attributes(),
            85..=91 => self.of_xattrs(),
            _ => self.looks(),
        };
        (who, line)
    }

    /// Records whether the last call succeeded.
    pub(crate) fn answered(&mut self, succeeded: bool) {
        if let Some((who, handle)) = self.opening.take()
            && succeeded
        {
            self.open[who].insert(handle);
        }
    }

    fn path(&mut self) -> String {
        let dir = if self.random.bool() {
            DIRS[0]
        } else {
            self.pick(&DIRS)
        };
        dir.to_owned() + self.pick(&NAMES)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.usize(..from.len())]
    }

    fn mode(&mut self) -> &'static str {
        self.pick(&[
            "644", "600", "755", "777", "770", "666", "2775", "1777", "4755", "000", "444",
        ])
    }

    fn of_names(&mut self) -> String {
        let (path, other, mode) = (self.path(), self.path(), self.mode());
        match self.random.u32(..26) {
            0..=4 => format!("creat {path} {mode}"),
            5..=8 => format!("mkdir {path} {mode}"),
            9 | 10 => format!("rmdir {path}"),
            11..=13 => format!("unlink {path}"),
            14 | 15 => format!("link {path} {other}"),
            16 => format!("symlink {other} {path}"),
            17 => format!("mknod {path} fifo {mode}"),
            18 => format!("mknod {path} char {mode} 1 3"),
            19..=22 => format!("rename {path} {other}"),
            23 => format!("rename {path} {other} NOREPLACE"),
            24 => format!("rename {path} {other} EXCHANGE"),
            _ => format!("rename {path} {other} WHITEOUT"),
        }
    }

    fn opens(&mut self, who: usize) -> String {
        let handle = format!("h{}", self.random.u32(..HANDLES));
        let path = self.path();
        let flags = self.pick(&[
            "RDWR,CREATE",
            "RDWR,CREATE",
            "RDWR",
            "RDONLY",
            "WRONLY",
            "WRONLY,CREATE",
            "RDWR,TRUNC",
            "WRONLY,APPEND",
            "RDWR,APPEND,CREATE",
            "WRONLY,DSYNC",
            "RDWR,CREATE,EXCL",
        ]);
        self.opening = Some((who, handle.clone()));
        if self.random.u32(..12) == 0 {
            let dir = self.pick(&["p", "q", "."]);
            return format!("open {handle} {dir} RDWR,TMPFILE,NONBLOCK 640");
        }
        // Opening a fifo would wait for its other end.
        format!("open {handle} {path} {flags},NONBLOCK {}", self.mode())
    }

    fn offset(&mut self) -> u64 {
        match self.random.u32(..6) {
            0 => 0,
            1 => self.random.u64(..5000),
            2 | 3 => self.random.u64(..80) * 4096,
            4 => self.random.u64(..600) * 512,
            _ => self.random.u64(..300_000),
        }
    }

    fn length(&mut self) -> u64 {
        match self.random.u32(..5) {
            0 => self.random.u64(..20),
            1 | 2 => self.random.u64(1..10) * 4096,
            3 => self.random.u64(1..40) * 512,
            _ => self.random.u64(..40_000),
        }
    }

    fn handle(&mut self, who: usize) -> Option<String> {
        let open = &self.open[who];
        let at = self.random.usize(..open.len().max(1));
        open.iter().nth(at).cloned()
    }

    fn of_handles(&mut self, who: usize) -> String {
        let Some(handle) = self.handle(who) else {
            return self.opens(who);
        };
        let (at, length) = (self.offset(), self.length());
        let letter = self.random.lowercase();
        match self.random.u32(..38) {
            0..=3 => format!("write {handle} {letter}*{length}"),
            4..=9 => format!("pwrite {handle} {at} {letter}*{length}"),
            10 | 11 => format!("read {handle} {length}"),
            12..=16 => format!("pread {handle} {at} {length}"),
            17 => format!("seek {handle} set {at}"),
            18 => format!("seek {handle} end 0"),
            19 | 20 => format!("ftruncate {handle} {at}"),
            21 => format!("fallocate {handle} - {at} {length}"),
            22 => format!("fallocate {handle} KEEP_SIZE {at} {length}"),
            23 | 24 => format!("fallocate {handle} KEEP_SIZE,PUNCH_HOLE {at} {length}"),
            25 => format!("fallocate {handle} ZERO_RANGE {at} {length}"),
            26..=28 => {
                let other = self.handle(who).unwrap_or_else(|| handle.clone());
                let to = self.offset();
                format!("copy {handle} {at} {other} {to} {length}")
            }
            29 => format!("fsync {handle}"),
            30 => format!("fdatasync {handle}"),
            31 => format!("fchmod {handle} {}", self.mode()),
            32 => format!("fchown {handle} 1001 2000"),
            33 => format!("pwritev2 {handle} - {letter}*{length} APPEND"),
            34 => {
                let path = self.path();
                format!("linkfd {handle} {path}")
            }
            35 | 36 => format!("fstat {handle}"),
            _ => {
                self.open[who].remove(&handle);
                format!("close {handle}")
            }
        }
    }

    fn of_attributes(&mut self) -> String {
        let (path, at) = (self.path(), self.offset());
        match self.random.u32(..16) {
            0..=3 => format!("chmod {path} {}", self.mode()),
            4 | 5 => {
                let owner = self.pick(&["0", "1001", "1002", "-"]);
                let group = self.pick(&["0", "1001", "2000", "-"]);
                format!("lchown {path} {owner} {group}")
            }
            6 | 7 => format!("truncate {path} {at}"),
            8 | 9 => {
                let access = self.pick(&["1.000000001", "now", "omit"]);
                let change = self.pick(&["2.000000002", "now", "omit"]);
                format!("utimes {path} {access} {change} SYMLINK_NOFOLLOW")
            }
            10 => format!("addflags {path} NODUMP"),
            // FUSE in the kernel checks immutable and append-only in a different order: covered by
            // `mount_posix`.
            11 | 12 => format!("addflags {path} NOATIME"),
            13 | 14 => format!("dropflags {path} NOATIME,NODUMP"),
            _ => format!("flags {path}"),
        }
    }

    fn of_xattrs(&mut self) -> String {
        let path = self.path();
        let name = self.pick(&[
            "user.a",
            "user.b",
            "user.longer-name",
            "trusted.t",
            "security.s",
        ]);
        let length = self.pick(&["1", "30", "200", "900", "3000", "5000"]);
        let list = self.pick(&LISTS);
        let set = self.set_attribute;
        match self.random.u32(..12) {
            0..=3 => format!("{set} {path} {name} v*{length}"),
            4 => format!("{set} {path} {name} v*{length} CREATE"),
            5 => format!("lremovexattr {path} {name}"),
            6 => format!("lgetxattr {path} {name}"),
            7 | 8 => format!("llistxattr {path}"),
            9 => format!("setxattr {path} system.posix_acl_access {list}"),
            10 => format!("setxattr {path} system.posix_acl_default {list}"),
            _ => format!("removexattr {path} system.posix_acl_access"),
        }
    }

    fn looks(&mut self) -> String {
        let path = self.path();
        match self.random.u32(..9) {
            0 | 1 => format!("stat {path}"),
            2 => format!("lstat {path}"),
            3 => format!("list {path}"),
            4 => "list .".to_owned(),
            5 | 6 => format!("content {path}"),
            7 => format!("readlink {path}"),
            _ => format!("access {path} rw"),
        }
    }
}
