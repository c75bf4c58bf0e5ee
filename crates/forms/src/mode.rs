//! File modes: octal and symbolic changes as `chmod` takes them, and `-rwxr-xr-x` as `ls` shows them.

/// All twelve permission bits.
pub const ALL: u32 = 0o7777;

/// A change of mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// An octal mode.
    Octal {
        /// The permission bits.
        mode: u32,
        /// Whether a directory keeps its set-id bits, as with `chmod` for modes of four digits or fewer.
        keep_directory_ids: bool,
    },
    /// Symbolic clauses, in order.
    Symbolic(Vec<Clause>),
}

/// One `who op what` of a symbolic mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The bits that the clause may change: rwx positions and special bits.
    who: u32,
    /// No `ugoa` was given, so bits in the process's umask are not changed.
    umasked: bool,
    op: u8,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Permission bits for every class. `search` stands for `X`.
    Bits { bits: u32, search: bool },
    /// The current bits of user (6), group (3) or others (0).
    Copy { shift: u32 },
}

impl ModeChange {
    /// Parses `0755`, `u+x,g-w`, `a=rX`, `g=u`…
    pub fn parse(text: &str) -> Result<ModeChange, String> {
        let bad =
            || format!("invalid mode '{text}': write octal digits as 0644 or clauses as u+x,g-w");
        if text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_digit())
        {
            let mode = u32::from_str_radix(text, 8).map_err(|_| bad())?;
            if mode > ALL {
                return Err(bad());
            }
            return Ok(ModeChange::Octal {
                mode,
                keep_directory_ids: text.len() < 5,
            });
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part.as_bytes(), &mut clauses).ok_or_else(bad)?;
        }
        Ok(ModeChange::Symbolic(clauses))
    }

    /// The mode after the change. `umask` applies to clauses without `ugoa`.
    pub fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        match self {
            ModeChange::Octal {
                mode: new,
                keep_directory_ids,
            } => {
                if is_dir && *keep_directory_ids {
                    new | (mode & 0o6000)
                } else {
                    *new
                }
            }
            ModeChange::Symbolic(clauses) => clauses
                .iter()
                .fold(mode & ALL, |mode, clause| clause.apply(mode, is_dir, umask)),
        }
    }
}

fn parse_part(part: &[u8], clauses: &mut Vec<Clause>) -> Option<()> {
    let mut at = 0;
    let mut who = 0;
    while let Some(byte) = part.get(at) {
        who |= match byte {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            b'a' => ALL,
            _ => break,
        };
        at += 1;
    }
    let umasked = who == 0;
    let who = if umasked { ALL } else { who };
    part.get(at)?;
    while let Some(&op @ (b'+' | b'-' | b'=')) = part.get(at) {
        at += 1;
        let what = match part.get(at) {
            Some(b'u') => copy(6, &mut at),
            Some(b'g') => copy(3, &mut at),
            Some(b'o') => copy(0, &mut at),
            _ => bits(part, &mut at),
        };
        clauses.push(Clause {
            who,
            umasked,
            op,
            what,
        });
    }
    (at == part.len()).then_some(())
}

fn copy(shift: u32, at: &mut usize) -> What {
    *at += 1;
    What::Copy { shift }
}

fn bits(part: &[u8], at: &mut usize) -> What {
    let (mut bits, mut search) = (0, false);
    while let Some(byte) = part.get(*at) {
        match byte {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= 0o111,
            b'X' => search = true,
            b's' => bits |= 0o6000,
            b't' => bits |= 0o1000,
            _ => break,
        }
        *at += 1;
    }
    What::Bits { bits, search }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let bits = match self.what {
            What::Bits { bits, search } if search && (is_dir || mode & 0o111 != 0) => bits | 0o111,
            What::Bits { bits, .. } => bits,
            What::Copy { shift } => ((mode >> shift) & 7) * 0o111,
        };
        let held_back = if self.umasked { umask & 0o777 } else { 0 };
        let bits = bits & self.who & !held_back;
        match self.op {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            _ => {
                // `=` clears all bits that it may change, except a directory's set-id bits unless they are
                // named.
                let named = matches!(self.what, What::Bits { bits, .. } if bits & 0o6000 != 0);
                let mut cleared = self.who;
                if is_dir && !named {
                    cleared &= !0o6000;
                }
                (mode & !cleared) | bits
            }
        }
    }
}

/// The mode as `ls -l` shows it, such as `-rwxr-xr-x`, with `kind` as the first letter.
pub fn show(kind: char, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let class = mode >> shift;
        text.push(if class & 4 != 0 { 'r' } else { '-' });
        text.push(if class & 2 != 0 { 'w' } else { '-' });
        text.push(match (class & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, mode: u32, is_dir: bool) -> u32 {
        ModeChange::parse(text).unwrap().apply(mode, is_dir, 0o022)
    }

    #[test]
    fn octal() {
        assert_eq!(change("644", 0o777, false), 0o644);
        assert_eq!(change("4755", 0, false), 0o4755);
        assert_eq!(change("755", 0o2700, true), 0o2755);
        assert_eq!(change("00755", 0o2700, true), 0o755);
    }

    #[test]
    fn symbolic() {
        for (text, before, is_dir, after) in [
            ("u+x", 0o644, false, 0o744),
            ("u+x,g-w", 0o664, false, 0o744),
            ("+w", 0o444, false, 0o644),
            ("a+w", 0o444, false, 0o666),
            ("go=", 0o777, false, 0o700),
            ("a=rX", 0o700, false, 0o555),
            ("a=rX", 0o600, false, 0o444),
            ("a+X", 0o600, true, 0o711),
            ("g=u", 0o640, false, 0o660),
            ("o=g-w", 0o670, false, 0o675),
            ("u+s", 0o755, false, 0o4755),
            ("+t", 0o755, true, 0o1755),
            ("g=rx", 0o2777, true, 0o2757),
            ("u=rw,go=r", 0o777, false, 0o644),
        ] {
            assert_eq!(change(text, before, is_dir), after, "{text} on {before:o}");
        }
    }

    #[test]
    fn rubbish_is_refused() {
        for text in ["", "9", "77777", "u", "u+q", "rwx", "u+x,"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(show('-', 0o644), "-rw-r--r--");
        assert_eq!(show('d', 0o1777), "drwxrwxrwt");
        assert_eq!(show('-', 0o6755), "-rwsr-sr-x");
        assert_eq!(show('-', 0o7000), "---S--S--T");
    }
}
