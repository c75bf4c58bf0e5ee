//! A list of the system calls that a process may make, as text: one file for each policy and machine, in
//! `calls/`.
//!
//! ```text
//! # A comment.
//! read                                        always allowed
//! clone: arg0 & CLONE_THREAD == CLONE_THREAD  allowed if this holds
//! fcntl: arg1 == F_GETFD | F_GETFL            allowed if it is one of these
//! kill: arg0 == SELF; arg0 == 0, arg1 == 20   allowed if the first holds, or both of the second
//!
//! [network]                                   what follows is for processes with this right only
//! ```
//!
//! A call may stand in several parts; it is allowed if one of them allows it. Numbers are decimal, or words:
//! [`WORDS`], `SELF` (this process), `NULL` (all 64 bits are 0; other arguments have 32).

use std::collections::BTreeMap;

use libc::c_int;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::{SeccompCmpOp, SeccompCondition, SeccompRule};

/// What of a list is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    line: usize,
    what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} of the list of calls: {}", self.line, self.what)
    }
}

/// The allowed calls by their numbers; without rules: always.
pub(crate) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Reads `text`: the parts for processes with these `rights`. `number` knows the machine's calls by name.
///
/// # Errors
/// The first line that is wrong, also in other parts.
pub(crate) fn read(
    text: &str,
    rights: &[&str],
    own_process: u32,
    number: fn(&str) -> Option<i32>,
) -> Result<Rules, Wrong> {
    let mut rules = Rules::new();
    let mut is_ours = true;
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(right) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            is_ours = rights.contains(&right);
            continue;
        }
        let wrong = |what| Wrong { line: at + 1, what };
        let (name, conditions) = match line.split_once(':') {
            Some((name, conditions)) => (name, Some(conditions)),
            None => (line, None),
        };
        let call = number(name).ok_or_else(|| wrong(format!("no call is named {name}")))?;
        let more = match conditions {
            Some(text) => alternatives(text, own_process).map_err(wrong)?,
            None => Vec::new(),
        };
        if is_ours {
            allow(&mut rules, call.into(), more);
        }
    }
    Ok(rules)
}

/// Adds alternatives to those of other parts; none: the call is always allowed.
fn allow(rules: &mut Rules, call: i64, more: Vec<SeccompRule>) {
    match rules.get_mut(&call) {
        None => {
            rules.insert(call, more);
        }
        Some(known) if more.is_empty() || known.is_empty() => known.clear(),
        Some(known) => known.extend(more),
    }
}

/// The alternatives of a line: `arg0 == 1 | 2; arg0 & 4 == 4, arg1 == 0`.
fn alternatives(text: &str, own_process: u32) -> Result<Vec<SeccompRule>, String> {
    let mut all = Vec::new();
    for alternative in text.split(';') {
        // Each of the conditions may have several values: one rule for each combination.
        let mut rules: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
        for condition in alternative.split(',') {
            let values = conditions(condition.trim(), own_process)?;
            let with = |rule: Vec<SeccompCondition>| {
                values.clone().into_iter().map(move |value| {
                    let mut rule = rule.clone();
                    rule.push(value);
                    rule
                })
            };
            rules = rules.into_iter().flat_map(with).collect();
        }
        for rule in rules {
            all.push(SeccompRule::new(rule).map_err(|error| error.to_string())?);
        }
    }
    Ok(all)
}

/// One condition, for each of its values.
fn conditions(text: &str, own_process: u32) -> Result<Vec<SeccompCondition>, String> {
    let (left, right) = text
        .split_once("==")
        .ok_or_else(|| format!("'{text}' is no condition"))?;
    let value = |word: &str| value(word.trim(), own_process);
    let (argument, mask) = match left.split_once('&') {
        Some((argument, mask)) => (argument, Some(value(mask)?)),
        None => (left, None),
    };
    let argument = argument.trim().strip_prefix("arg");
    let argument: u8 = argument
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| format!("'{left}' is no argument"))?;
    let one = |word: &str| {
        let compare = mask.map_or(SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
        let bits = if word.trim() == "NULL" { Qword } else { Dword };
        SeccompCondition::new(argument, bits, compare, value(word)?)
            .map_err(|error| error.to_string())
    };
    right.split('|').map(one).collect()
}

fn value(word: &str, own_process: u32) -> Result<u64, String> {
    if word == "SELF" {
        return Ok(own_process.into());
    }
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let known = WORDS.iter().find(|(name, _)| *name == word);
    known
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("'{word}' is no value"))
}

/// As the kernel reads 32 bits of an argument.
const fn bits(value: c_int) -> u64 {
    value.cast_unsigned() as u64
}

/// `_IO` and its like of the kernel's `asm-generic/ioctl.h`: these machines have the same numbers.
const fn request(direction: u64, kind: u8, number: u8, len_bytes: u64) -> u64 {
    direction << 30 | len_bytes << 16 | (kind as u64) << 8 | number as u64
}

/// The words for values. They are the same on all machines that have lists.
const WORDS: &[(&str, u64)] = &[
    ("NULL", 0),
    // clone(2)
    ("CLONE_THREAD", bits(libc::CLONE_THREAD)),
    // mmap(2)
    ("PROT_EXEC", bits(libc::PROT_EXEC)),
    // socket(2)
    ("AF_UNIX", bits(libc::AF_UNIX)),
    ("AF_INET", bits(libc::AF_INET)),
    ("AF_INET6", bits(libc::AF_INET6)),
    ("AF_NETLINK", bits(libc::AF_NETLINK)),
    // sched(7)
    ("SCHED_OTHER", bits(libc::SCHED_OTHER)),
    // signal(7)
    ("SIGTSTP", bits(libc::SIGTSTP)),
    // prctl(2)
    ("PR_SET_NAME", bits(libc::PR_SET_NAME)),
    ("PR_SET_VMA", bits(libc::PR_SET_VMA)),
    // fcntl(2)
    ("F_DUPFD", bits(libc::F_DUPFD)),
    ("F_DUPFD_CLOEXEC", bits(libc::F_DUPFD_CLOEXEC)),
    ("F_GETFD", bits(libc::F_GETFD)),
    ("F_SETFD", bits(libc::F_SETFD)),
    ("F_GETFL", bits(libc::F_GETFL)),
    ("F_SETFL", bits(libc::F_SETFL)),
    ("F_OFD_GETLK", bits(libc::F_OFD_GETLK)),
    ("F_OFD_SETLK", bits(libc::F_OFD_SETLK)),
    ("F_SETPIPE_SZ", bits(libc::F_SETPIPE_SZ)),
    ("F_GETPIPE_SZ", bits(libc::F_GETPIPE_SZ)),
    ("F_ADD_SEALS", bits(libc::F_ADD_SEALS)),
    // ioctl_tty(2)
    ("TCGETS", 0x5401),
    ("TCSETS", 0x5402),
    ("TCSETSW", 0x5403),
    ("TCSETSF", 0x5404),
    ("TIOCGWINSZ", 0x5413),
    // ioctl(2)
    ("FIONREAD", 0x541b),
    ("FIONBIO", 0x5421),
    ("FIOCLEX", 0x5451),
    // linux/fs.h
    ("BLKROGET", request(0, 0x12, 94, 0)),
    ("BLKFLSBUF", request(0, 0x12, 97, 0)),
    ("BLKSSZGET", request(0, 0x12, 104, 0)),
    ("BLKPBSZGET", request(0, 0x12, 123, 0)),
    ("BLKDISCARD", request(0, 0x12, 119, 0)),
    ("BLKGETSIZE64", request(2, 0x12, 114, 8)),
    ("FICLONE", request(1, 0x94, 9, 4)),
    // linux/loop.h
    ("LOOP_GET_STATUS64", 0x4c05),
    // linux/fuse.h
    ("FUSE_DEV_IOC_CLONE", request(2, 229, 0, 4)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> Option<i32> {
        ["read", "kill", "fcntl"]
            .iter()
            .position(|known| *known == name)
            .map(|at| at as i32)
    }

    fn read_for(text: &str, rights: &[&str]) -> Result<Vec<(i64, usize)>, Wrong> {
        let rules = read(text, rights, 7, number)?;
        Ok(rules
            .into_iter()
            .map(|(call, rules)| (call, rules.len()))
            .collect())
    }

    #[test]
    fn parts_are_joined() {
        let text = "read # always\nkill: arg0 == SELF\n[more]\nkill: arg0 == 0, arg1 == 1 | 2; arg0 == 9\n\
                    [all]\nkill\n";
        assert_eq!(read_for(text, &[]), Ok(vec![(0, 0), (1, 1)]));
        assert_eq!(read_for(text, &["more"]), Ok(vec![(0, 0), (1, 4)]));
        assert_eq!(read_for(text, &["all"]), Ok(vec![(0, 0), (1, 0)]));
        assert_eq!(
            read_for("kill\n[more]\nkill: arg0 == 0", &["more"]),
            Ok(vec![(1, 0)])
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, what) in [
            ("raed", "no call is named raed"),
            ("read: arg0", "'arg0' is no condition"),
            ("read: arg == 1", "'arg ' is no argument"),
            ("read: arg0 == ONE", "'ONE' is no value"),
            ("read: arg6 == 1", ""),
            ("[part]\nraed", "no call is named raed"),
        ] {
            let wrong = read_for(text, &[]).unwrap_err();
            assert_eq!(wrong.line, text.lines().count());
            assert!(wrong.what.contains(what), "{wrong}");
        }
    }
}
