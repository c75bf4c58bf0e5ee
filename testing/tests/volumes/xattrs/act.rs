//! Random calls and their results.

/// A generator of random numbers (xorshift), so that a failing round can be repeated.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The type of a created inode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    File,
    Dir,
    Fifo,
    Symlink,
}

/// A call. Paths start at the root, without a slash.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(String, Kind, u32, u32),
    Remove(String, bool),
    Chmod(String, u32),
    Chown(String, u32),
    Set(String, String, Vec<u8>, Mode),
    Take(String, String),
}

/// How an attribute is set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Either,
    Create,
    Replace,
}

/// The result of a call: the errno if it is refused.
pub(crate) type Outcome = Result<(), rustix::io::Errno>;

const DIRS: [&str; 3] = ["d0", "d1", "d0/sub"];

/// Random calls on a small tree, with or without symbolic links. Also returns all paths of the tree.
pub(crate) fn random(rng: &mut Rng, steps: usize, links: bool) -> (Vec<Act>, Vec<String>) {
    let mut paths: Vec<String> = DIRS.map(String::from).to_vec();
    for dir in DIRS {
        paths.extend((0..4).map(|number| format!("{dir}/{number}")));
    }
    let mut acts: Vec<_> = DIRS
        .iter()
        .map(|dir| Act::Create((*dir).into(), Kind::Dir, 0o755, 0o022))
        .collect();
    acts.extend((0..steps).map(|_| step(rng, &paths, links)));
    (acts, paths)
}

fn step(rng: &mut Rng, paths: &[String], links: bool) -> Act {
    let path = rng.one(paths);
    let leaf = paths[DIRS.len() + rng.below(paths.len() - DIRS.len())].clone();
    match rng.below(20) {
        0..4 => {
            let last = if links { Kind::Symlink } else { Kind::Dir };
            let kind = rng.one(&[Kind::File, Kind::File, Kind::Dir, Kind::Fifo, last]);
            let mode = rng.one(&[0o666, 0o777, 0o600, 0o2755]);
            Act::Create(leaf, kind, mode, rng.one(&[0, 0o022, 0o077]))
        }
        4 => Act::Remove(leaf, rng.below(2) == 0),
        5 | 6 => Act::Chmod(path, rng.one(&[0o644, 0o700, 0o2770, 0o4755, 0])),
        7 => Act::Chown(path, rng.one(&[0, 1000])),
        8..11 => Act::Set(path, acl_name(rng), acl(rng), Mode::Either),
        11 => Act::Take(path, acl_name(rng)),
        12 | 13 => Act::Take(path, name(rng)),
        _ => {
            let most = rng.one(&[8, 60, 400, 1500, 9000]);
            // Few different values, so that some are equal and may be shared.
            let value = vec![rng.below(3) as u8; rng.below(most)];
            Act::Set(
                path,
                name(rng),
                value,
                rng.one(&[Mode::Either, Mode::Either, Mode::Create, Mode::Replace]),
            )
        }
    }
}

fn name(rng: &mut Rng) -> String {
    rng.one(&[
        "user.a",
        "user.b",
        "user.a name that is somewhat longer than the others",
        "trusted.t",
        "security.s",
        "security.capability2",
        "other.o",
        "user.",
    ])
    .to_owned()
}

fn acl_name(rng: &mut Rng) -> String {
    rng.one(&["system.posix_acl_access", "system.posix_acl_default"])
        .to_owned()
}

/// An ACL in the form of programs; sometimes an invalid one.
fn acl(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    let mut add = |tag: u16, rights: usize, id: u32| {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&(rights as u16).to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    };
    let named = rng.below(4);
    add(1, 4 + rng.below(4), u32::MAX);
    (0..named as u32).for_each(|id| add(2, 4 | id as usize, 1000 + id));
    add(4, rng.below(8), u32::MAX);
    if named == 3 {
        add(8, 5, 50);
    }
    if named > 0 && rng.below(12) > 0 {
        add(16, rng.below(8), u32::MAX);
    }
    add(32, rng.below(8), u32::MAX);
    bytes
}
